"""Learns an item embedding table from ratings, dense and in tensor-train form, by alternating least squares.

Model of both: rating[u, i] = mean + bias[u] + bias[i] + user[u] . item[i]. `dense` solves users and items in
turn (Zhou et al. 2008, ALS with lambda times count). `tensor_train` never has a dense item table: a rating is
linear in each core while the users and the other cores stand still, so each core is solved exactly in its
turn, one small least-squares problem for each of its slices. Float64 NumPy, seeded, no order left to chance.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Ratings:
    """Ratings split into those learned from and those held out (one flag a sample)."""

    users: np.ndarray
    items: np.ndarray
    values: np.ndarray
    held_out: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.users.max()) + 1, int(self.items.max()) + 1

    def part(self, held_out: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        pick = self.held_out == held_out
        return self.users[pick], self.items[pick], self.values[pick]


@dataclass(frozen=True)
class Model:
    """Biases, user vectors (users, D) and the item table (rows, D)."""

    mean: float
    user_bias: np.ndarray
    item_bias: np.ndarray
    users: np.ndarray
    items: np.ndarray

    def rmse(self, ratings: Ratings, items: np.ndarray | None = None) -> float:
        """Root mean squared error on the held-out ratings, with `items` in place of the model's own table."""
        u, i, values = ratings.part(held_out=True)
        table = self.items if items is None else items
        taste = np.einsum("nd,nd->n", self.users[u], table[i])
        guess = self.mean + self.user_bias[u] + self.item_bias[i] + taste
        return float(np.sqrt(np.mean((guess - values) ** 2)))


def split(users: np.ndarray, items: np.ndarray, values: np.ndarray, *, held_out: float = 0.1,
          seed: int = 0) -> Ratings:
    """Holds out the given share of the ratings, drawn at random from `seed`."""
    if not 0 < held_out < 1:
        raise ValueError(f"held_out is {held_out}; it must lie between 0 and 1")
    if not users.size == items.size == values.size or not users.size:
        raise ValueError(f"users, items and values must be equally many and some, "
                         f"not {users.size}, {items.size}, {values.size}")
    drawn = np.random.default_rng(seed).random(users.size) < held_out
    return Ratings(users, items, np.asarray(values, dtype=np.float64), drawn)


def biases(ratings: Ratings, *, damping: float = 5.0) -> tuple[float, np.ndarray, np.ndarray]:
    """Mean, user and item biases of the ratings learned from, each pulled towards 0 by `damping` samples."""
    u, i, values = ratings.part(held_out=False)
    n_users, n_items = ratings.shape
    mean = float(values.mean())
    user_bias, item_bias = np.zeros(n_users), np.zeros(n_items)
    for _ in range(10):
        item_bias = (np.bincount(i, values - mean - user_bias[u], n_items)
                     / (np.bincount(i, minlength=n_items) + damping))
        user_bias = (np.bincount(u, values - mean - item_bias[i], n_users)
                     / (np.bincount(u, minlength=n_users) + damping))
    return mean, user_bias, item_bias


def dense(ratings: Ratings, *, columns: int, penalty: float = 0.1, sweeps: int = 10, seed: int = 0) -> Model:
    """A model with a dense item table of `columns` columns."""
    mean, user_bias, item_bias = biases(ratings)
    u, i, values = ratings.part(held_out=False)
    rest = values - mean - user_bias[u] - item_bias[i]
    n_users, n_items = ratings.shape
    items = 0.1 * np.random.default_rng(seed).standard_normal((n_items, columns))
    users = np.zeros((n_users, columns))
    for _ in range(sweeps):
        users = _solve_groups(u, items, i, rest, n_users, penalty)
        items = _solve_groups(i, users, u, rest, n_items, penalty)
    return Model(mean, user_bias, item_bias, users, items)


def tensor_train(ratings: Ratings, *, row_modes: tuple[int, ...], column_modes: tuple[int, ...], rank: int,
                 rows_of: np.ndarray | None = None, penalty: float = 0.1, sweeps: int = 10,
                 seed: int = 0) -> tuple[Model, list[np.ndarray]]:
    """A model whose item table is the three cores returned with it (float64); item i is row `rows_of[i]`."""
    if len(row_modes) != 3 or len(column_modes) != 3:
        raise ValueError(f"row_modes {row_modes} and column_modes {column_modes} must be three factors each")
    n_users, n_items = ratings.shape
    if n_items > np.prod(row_modes):
        raise ValueError(f"row_modes {row_modes} multiply to {np.prod(row_modes)}, "
                         f"fewer than the {n_items} items")
    rows = np.arange(n_items) if rows_of is None else rows_of
    mean, user_bias, item_bias = biases(ratings)
    u, i, values = ratings.part(held_out=False)
    rest = values - mean - user_bias[u] - item_bias[i]
    places = np.unravel_index(rows[i], row_modes)

    rng = np.random.default_rng(seed)
    ranks = (1, rank, rank, 1)
    # The scale gives entries of the product about the spread that the dense start has.
    cores = [rng.standard_normal((ranks[k], row_modes[k], column_modes[k], ranks[k + 1]))
             * (0.1 / rank) ** (1 / 3) for k in range(3)]
    users = np.zeros((n_users, int(np.prod(column_modes))))
    for _ in range(sweeps):
        users = _solve_groups(u, table(cores)[rows], i, rest, n_users, penalty)
        for k in range(3):
            _solve_core(cores, k, places, users[u].reshape(-1, *column_modes), rest, penalty)
            cores = _balanced(cores)
    return Model(mean, user_bias, item_bias, users, table(cores)[rows]), cores


def objective(model: Model, ratings: Ratings, penalty: float) -> float:
    """What both learners lower in every step: squared error plus the penalty on every vector used."""
    u, i, values = ratings.part(held_out=False)
    guess = (model.mean + model.user_bias[u] + model.item_bias[i]
             + np.einsum("nd,nd->n", model.users[u], model.items[i]))
    return float(np.sum((values - guess) ** 2) + penalty * np.sum(model.users[u] ** 2)
                 + penalty * np.sum(model.items[i] ** 2))


def table(cores: list[np.ndarray]) -> np.ndarray:
    """The rows (prod I, prod J) of three cores, in their own precision."""
    g1, g2, g3 = cores
    full = np.einsum("aur,rbvs,scw->abcuvw", g1[0], g2, g3[..., 0], optimize=True)
    return full.reshape(int(np.prod(full.shape[:3])), -1)


def _solve_groups(groups: np.ndarray, vectors: np.ndarray, of: np.ndarray, rest: np.ndarray, count: int,
                  penalty: float) -> np.ndarray:
    """For each group, the ridge solution over its samples; the penalty grows with the samples it has."""
    order = np.argsort(groups, kind="stable")
    starts = np.searchsorted(groups[order], np.arange(count + 1))
    solved = np.zeros((count, vectors.shape[1]))
    eye = np.eye(vectors.shape[1])
    for group in range(count):
        samples = order[starts[group]:starts[group + 1]]
        if samples.size:
            x = vectors[of[samples]]
            solved[group] = np.linalg.solve(x.T @ x + penalty * samples.size * eye, x.T @ rest[samples])
    return solved


def _solve_core(cores: list[np.ndarray], k: int, places: tuple[np.ndarray, ...], users: np.ndarray,
                rest: np.ndarray, penalty: float) -> None:
    """Solves core k in place, slice by slice.

    A rating is linear in the slice of core k that its item uses: `feature` is what multiplies each entry.
    So is the item's vector, whose squared norm is a quadratic form in the slice: `form`.
    """
    g1, g2, g3 = cores[0][0], cores[1], cores[2][..., 0]  # (i1, u, r), (r, i2, v, s), (s, i3, w)
    order = np.argsort(places[k], kind="stable")
    starts = np.searchsorted(places[k][order], np.arange(cores[k].shape[1] + 1))
    for place in range(cores[k].shape[1]):
        samples = order[starts[place]:starts[place + 1]]
        if not samples.size:
            continue
        user = users[samples]
        a, b, c = (p[samples] for p in places)
        counts = np.zeros((g1.shape[0], g2.shape[1], g3.shape[1]))
        np.add.at(counts, (a, b, c), 1)
        left = np.einsum("aur,auq->arq", g1, g1)
        right = np.einsum("scw,tcw->cst", g3, g3)
        if k == 0:
            after = np.einsum("rnvs,snw->nrvw", g2[:, b], g3[:, c], optimize=True)
            feature = np.einsum("nuvw,nrvw->nur", user, after, optimize=True)
            form = np.einsum("bc,rbvs,cst,qbvt->rq", counts[place], g2, right, g2, optimize=True)
            form = np.kron(np.eye(g1.shape[1]), form)
        elif k == 1:
            before = np.einsum("nur,nuvw->nrvw", g1[a], user, optimize=True)
            feature = np.einsum("nrvw,snw->nrvs", before, g3[:, c], optimize=True)
            form = np.einsum("ac,arq,vx,cst->rvsqxt", counts[:, place], left, np.eye(g2.shape[2]), right,
                             optimize=True)
        else:
            before = np.einsum("nur,nuvw->nrvw", g1[a], user, optimize=True)
            feature = np.einsum("nrvw,rnvs->nsw", before, g2[:, b], optimize=True)
            form = np.einsum("ab,arq,rbvs,qbvt->st", counts[:, :, place], left, g2, g2, optimize=True)
            form = np.kron(form, np.eye(g3.shape[2]))
        x = feature.reshape(samples.size, -1)
        gram = x.T @ x + penalty * form.reshape(x.shape[1], x.shape[1])
        # Directions that no item of the slice uses are left at zero by the smallest of ridges.
        gram[np.diag_indices_from(gram)] += 1e-9 * np.trace(gram) + 1e-30
        slice_ = np.linalg.solve(gram, x.T @ rest[samples])
        cores[k][:, place] = slice_.reshape(cores[k][:, place].shape)


def _balanced(cores: list[np.ndarray]) -> list[np.ndarray]:
    """The same train with equal norms of the cores, so that one penalty suits all."""
    norms = [np.linalg.norm(core) for core in cores]
    if min(norms) == 0:
        return cores
    mean = np.prod(norms) ** (1 / len(norms))
    return [core * (mean / norm) for core, norm in zip(cores, norms, strict=True)]
