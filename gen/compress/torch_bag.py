"""torch.nn.EmbeddingBag whose warm rows are a tensor train; needs the extra `torch` (pip install 'hotrail[torch]').

    bag = TieredBag(tiers(counts, dram_rows=700, tt_rows=5000), 16, rank=16, rate=0.05, rule="adagrad")
    loss_of(bag(indices, offsets)).backward()       # the bag's rows and cores have taken their step
    np.savez("weights.npz", **bag.arrays("item"))   # what `hotrail compile --weights` takes

A batch's rows are made once (unique rows), their first products G1[i1] G2[i2] once for all rows that share them: the
two levels of reuse of EL-Rec §III.A. Backward, the slopes of equal rows are summed before they meet the chain, those
of equal first products before they meet the first two cores (in-advance aggregation, §III.B), and where there is a
`rate` the step is taken there and then (fused update): no gradient is kept.

Hot and cold rows are dense, warm rows a TT, as SCRec §III.C places them; with no dense row it is EL-Rec's table,
with no warm row an EmbeddingBag.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from gen.data.remap import DRAM, SSD, TT, by_heat
from gen.data.shapes import column_modes, row_modes
from gen.model.recommender import TT_FORMATS
from golden.tt.block16 import rounded_cores
from golden.tt.cores import dense as dense_of
from golden.tt.cores import largest_ranks
from golden.tt.rows import shape_of

RULES = ("sgd", "adagrad", "adam")
# As torch.optim has them: Adagrad's and Adam's epsilon, Adam's decay of both moments.
TINY, SMALL, BETAS = 1e-10, 1e-8, (0.9, 0.999)


def tiers(counts: ArrayLike, *, dram_rows: int, tt_rows: int) -> NDArray[np.uint8]:
    """(rows,): 0 for the `dram_rows` rows with the most accesses, 1 for the `tt_rows` next ones, 2 for the others."""
    counts = np.asarray(counts)
    if min(dram_rows, tt_rows) < 0 or dram_rows + tt_rows > len(counts):
        raise ValueError(f"dram_rows {dram_rows} and tt_rows {tt_rows} must be 0 or more and together at most the "
                         f"{len(counts)} rows of the table")
    tier = np.full(len(counts), SSD, np.uint8)
    order = by_heat(counts)
    tier[order[:dram_rows]] = DRAM
    tier[order[dram_rows:dram_rows + tt_rows]] = TT
    return tier


class TieredBag(torch.nn.Module):
    """One embedding table of len(tier) rows of `dim` words, trained in the form in which cards hold it.

    Parameters  tier: (rows,) 1 for rows of the TT, any other number for dense ones. rank: of all inner ranks (less
                where the modes have no use for it), or the inner ranks. modes, columns: I_k and J_k (default: three
                near-equal ones). order: the TT's rows, each by its number in the table, first to last (default:
                ascending; rows that resemble each other should be neighbours). mode: sum, mean, max. rate, rule: of
                the fused update of dense rows by sgd, adagrad or adam, as torch.optim has them (adam on rows:
                SparseAdam); without a rate, gradients are left to an optimiser of yours. core_rate,
                core_rule: of the cores, if not the same. tt_format: the cores' on the card; in block16 rows are those
                of rounded cores, and what the cores learn from them goes to the float32 ones behind (straight-through
                estimator). std: of the rows at the start; 0: zeros, which warm rows
                learn best from. seed: of their values.
    Members     dense: (dense rows, dim). cores: (I, R, J, R') each, the mode's axis first, not rounded. scale: of the
                rates, for schedules. error: of the decomposition that the tensor train began with, 0 where it began by
                chance.
    Raises      ValueError: modes too small for the rows or columns that do not multiply to dim, a rule, an order or a
                format that does not exist; in a lookup, a core's value that block16 does not have
    """

    def __init__(self, tier: ArrayLike, dim: int, *, rank: int | Sequence[int] = 16,
                 modes: Sequence[int] | None = None, columns: Sequence[int] | None = None,
                 order: ArrayLike | None = None, mode: str = "sum", rate: float | None = None, rule: str = "sgd",
                 core_rate: float | None = None, core_rule: str | None = None,
                 tt_format: str = TT_FORMATS[0], std: float = 0.01, seed: int = 0, dtype: torch.dtype = torch.float32):
        super().__init__()
        tier = np.asarray(tier)
        warm = np.flatnonzero(tier == TT)
        if order is not None:
            order = np.asarray(order, dtype=np.int64)
            if not np.array_equal(np.sort(order), warm):
                raise ValueError(f"order must have each of the {len(warm)} rows of tier 1 once")
            warm = order
        for each in (rule, core_rule or rule):
            if each not in RULES:
                raise ValueError(f"rule is {each!r}; it must be one of {', '.join(RULES)}")
        if tt_format not in TT_FORMATS:
            raise ValueError(f"tt_format is {tt_format!r}; it must be one of {', '.join(TT_FORMATS)}")
        self.rows, self.dim, self.mode, self.rate, self.tt_format = len(tier), dim, mode, rate, tt_format
        self._rules = {"dense": (rule, rate), "cores": (core_rule or rule, rate if core_rate is None else core_rate)}
        # A row's number in its own tier.
        number = np.zeros(len(tier), np.int64)
        number[tier != TT] = np.arange(len(tier) - len(warm))
        number[warm] = np.arange(len(warm))
        self.register_buffer("number", torch.from_numpy(number), persistent=False)
        self.register_buffer("warm", torch.from_numpy(tier == TT), persistent=False)
        random = torch.Generator().manual_seed(seed)
        self.dense = torch.nn.Parameter(torch.randn(len(tier) - len(warm), dim, generator=random, dtype=dtype) * std)
        self.modes, self.columns, shapes = _shapes(len(warm), dim, rank, modes, columns)
        # Cores of this spread multiply to rows of the spread `std` (TT-Rec §4.1). Rows of zeros come of a last core of
        # zeros, which the others' product, of spread 1, then teaches.
        spread = _spread(shapes if std else shapes[:-1], std or 1.0)
        self.cores = torch.nn.ParameterList(
            [torch.randn(i, r, j, s, generator=random, dtype=dtype) * (spread if std or k < len(shapes) - 1 else 0.0)
             for k, (r, i, j, s) in enumerate(shapes)])
        self.scale, self.error = 1.0, 0.0
        self._moments: dict[str, list[torch.Tensor]] = {}
        self._steps: dict[str, int] = {}

    def forward(self, indices: torch.Tensor, offsets: torch.Tensor | None = None,
                weights: torch.Tensor | None = None, *, include_last_offset: bool = False) -> torch.Tensor:
        """Pooled bags (bags, dim), as torch.nn.functional.embedding_bag has them of the table `values()`.

        With a rate a bag may be called once between two backwards: the step changes what others still need, which
        torch refuses.
        """
        unique, back = self._distinct(indices)
        rows = _Rows.apply(self, unique, self.dense, *self.cores)
        return torch.nn.functional.embedding_bag(back, rows, offsets, mode=self.mode, per_sample_weights=weights,
                                                 include_last_offset=include_last_offset)

    def _distinct(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What is computed once of rows or first products, and which of it each needs; slopes are summed likewise."""
        unique, back = torch.unique(values, return_inverse=True)
        return unique, back

    def extra_repr(self) -> str:
        return (f"{self.rows}, {self.dim}, dense={len(self.dense)}, train={self.rows - len(self.dense)} as "
                f"{self.modes} x {self.columns}, words={self.words}, mode={self.mode!r}")

    @property
    def words(self) -> int:
        """Words of rows and cores; rows x dim of an EmbeddingBag."""
        return sum(int(each.numel()) for each in (self.dense, *self.cores))

    def tt_cores(self) -> list[NDArray[np.float32]]:
        """The cores as golden.tt and gen.compiler.tables have them, in their format: (R, I, J, R') float32."""
        cores = [np.ascontiguousarray(core.detach().cpu().numpy().transpose(1, 0, 2, 3), dtype=np.float32)
                 for core in self.cores]
        return list(rounded_cores(cores)) if self.tt_format == "block16" else cores

    def looked_up(self) -> list[torch.Tensor]:
        """The cores that lookups multiply, as `cores` has them: in their format."""
        if self.tt_format == TT_FORMATS[0]:
            return [core.detach() for core in self.cores]
        return [torch.from_numpy(core.swapaxes(0, 1).copy()).to(own) for core, own in zip(self.tt_cores(), self.cores)]

    def load_cores(self, cores: Sequence[NDArray]) -> None:
        """Takes cores (R, I, J, R') as its own, such as those of a decomposition.

        Raises ValueError: they have other shapes."""
        want = [tuple(core.shape[k] for k in (1, 0, 2, 3)) for core in self.cores]
        if [np.shape(core) for core in cores] != want:
            raise ValueError(f"cores have the shapes {[np.shape(core) for core in cores]}, this bag has {want}")
        with torch.no_grad():
            for mine, core in zip(self.cores, cores, strict=True):
                mine.copy_(torch.from_numpy(np.ascontiguousarray(np.moveaxis(core, 1, 0))))

    def values(self) -> NDArray[np.float32]:
        """The table (rows, dim), rows of the tensor train multiplied out."""
        out = np.zeros((self.rows, self.dim), np.float32)
        warm, number = self.warm.cpu().numpy(), self.number.cpu().numpy()
        out[~warm] = self.dense.detach().cpu().numpy()[number[~warm]]
        if warm.any():
            out[warm] = dense_of(self.tt_cores())[number[warm]]
        return out

    def arrays(self, name: str) -> Mapping[str, NDArray]:
        """The table under the names that a bundle's weights have: table_NAME, core1_NAME .. and tt_row_NAME, the row
        of the tensor train that each row is (-1: none)."""
        arrays: dict[str, NDArray] = {f"table_{name}": self.values()}
        if len(self.cores):
            arrays |= {f"core{k}_{name}": core for k, core in enumerate(self.tt_cores(), start=1)}
            warm, number = self.warm.cpu().numpy(), self.number.cpu().numpy()
            arrays[f"tt_row_{name}"] = np.where(warm, number, -1)
        return arrays

    @torch.no_grad()
    def retiered(self, tier: ArrayLike, *, order: ArrayLike | None = None, **options: Any) -> "TieredBag":
        """A bag of the same rows in other tiers: warm rows are decomposed, and go on from what they have learned.

        order, options: as at construction; rates and rules are the options' own. Dense rows keep their moments.
        Its `error` is the decomposition's.
        """
        from gen.compress.post_hoc import decompose, even

        bag = TieredBag(tier, self.dim, order=order, mode=self.mode, dtype=self.dense.dtype, **options)
        values, warm = torch.from_numpy(self.values()), bag.warm.cpu().numpy()
        if bag.modes:
            rows = np.empty(int(warm.sum()), np.int64)
            rows[bag.number.cpu().numpy()[warm]] = np.flatnonzero(warm)
            ranks = [core.shape[3] for core in bag.cores[:-1]]
            factors = decompose(values[rows].numpy(), bag.modes, bag.columns, ranks)
            bag.load_cores(even(factors.cores))
            bag.error = factors.error
        stays = torch.from_numpy(np.flatnonzero(~warm))
        bag.dense.copy_(values[stays])
        if "dense" in self._moments and not self.warm.any() and bag._rules["dense"][0] == self._rules["dense"][0]:
            bag._moments["dense"] = [moment[stays] for moment in self._moments["dense"]]
            bag._steps["dense"] = self._steps["dense"]
        return bag

    @torch.no_grad()
    def _step(self, name: str, slope: torch.Tensor, rows: torch.Tensor | None = None) -> None:
        """The rule's step of a parameter, or of some of its rows."""
        rule, rate = self._rules[name.split(".")[0]]
        assert rate is not None
        rate *= self.scale
        parameter = self.get_parameter(name)
        at = slice(None) if rows is None else rows
        if rule != "sgd":
            moments = self._moments.setdefault(name, [torch.zeros_like(parameter) for _ in range(1 + (rule == "adam"))])
            self._steps[name] = count = self._steps.get(name, 0) + 1
            if rule == "adagrad":
                moments[0][at] = squares = moments[0][at] + slope * slope
                slope = slope / (squares.sqrt() + TINY)
            else:
                moments[0][at] = mean = torch.lerp(slope, moments[0][at], BETAS[0])
                moments[1][at] = squares = torch.lerp(slope * slope, moments[1][at], BETAS[1])
                slope = mean / (1 - BETAS[0] ** count) / ((squares / (1 - BETAS[1] ** count)).sqrt() + SMALL)
        if rows is None:
            parameter.add_(slope, alpha=-rate)
        else:
            parameter.index_add_(0, rows, slope, alpha=-rate)


def _spread(shapes: Sequence[tuple[int, int, int, int]], std: float) -> float:
    inner = prod(shape[0] for shape in shapes[1:])
    return (std ** 2 / inner) ** (1 / (2 * len(shapes))) if shapes else 0.0


def _shapes(rows: int, dim: int, rank: int | Sequence[int], modes: Sequence[int] | None,
            columns: Sequence[int] | None) -> tuple[tuple[int, ...], tuple[int, ...], list[tuple[int, int, int, int]]]:
    """Modes, columns and (R, I, J, R') of each core; none for no rows."""
    if not rows:
        return (), (), []
    modes = tuple(modes) if modes is not None else row_modes(rows)
    columns = tuple(columns) if columns is not None else column_modes(dim, len(modes))
    if len(columns) != len(modes):
        raise ValueError(f"modes {modes} and columns {columns} must be equally many")
    inner = (tuple(min(rank, limit) for limit in largest_ranks(modes, columns))
             if isinstance(rank, (int, np.integer)) else tuple(rank))
    if len(inner) != len(modes) - 1:
        raise ValueError(f"rank {inner} must be one number or {len(modes) - 1}, one between each two cores")
    ranks = (1, *inner, 1)
    shapes = [(ranks[k], modes[k], columns[k], ranks[k + 1]) for k in range(len(modes))]
    shape_of([np.broadcast_to(np.float32(0), shape) for shape in shapes])
    if prod(modes) < rows:
        raise ValueError(f"modes {modes} multiply to {prod(modes)}, fewer than the tensor train's {rows} rows")
    if prod(columns) != dim:
        raise ValueError(f"columns {columns} multiply to {prod(columns)}, not to dim {dim}")
    return modes, columns, shapes


class _Rows(torch.autograd.Function):
    """Rows of a bag, each asked for once; backward sums, multiplies and, with a rate, takes the step."""

    @staticmethod
    def forward(ctx: Any, bag: TieredBag, unique: torch.Tensor, dense: torch.Tensor,
                *cores: torch.Tensor) -> torch.Tensor:
        number, warm = bag.number[unique], bag.warm[unique]
        ctx.bag = bag
        if not cores:
            ctx.save_for_backward(number, warm, dense)
            return dense[number]
        out = dense.new_empty(len(unique), bag.dim)
        out[~warm] = dense[number[~warm]]
        ctx.cores = bag.looked_up()
        ctx.chain = _Chain(bag, ctx.cores, number[warm])
        out[warm] = ctx.chain.rows()
        ctx.save_for_backward(number, warm, dense, *cores)
        return out

    @staticmethod
    def backward(ctx: Any, *slopes: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        number, warm, dense, *cores = ctx.saved_tensors     # refused by torch if a step has changed them
        bag, slope = ctx.bag, slopes[0]
        of_cores = ctx.chain.slopes(ctx.cores, slope[warm]) if cores else []
        if bag.rate is not None:
            bag._step("dense", slope[~warm], number[~warm])
            for k, its in enumerate(of_cores):
                bag._step(f"cores.{k}", its)
            return None, None, None, *[None] * len(cores)
        of_dense = torch.zeros_like(dense).index_add_(0, number[~warm], slope[~warm])
        return None, None, of_dense, *of_cores


class _Chain:
    """The products of some rows of a TT: T = G1[i1] G2[i2] once for each pair, then a product a core a row."""

    def __init__(self, bag: TieredBag, cores: Sequence[torch.Tensor], numbers: torch.Tensor):
        self.columns = bag.columns
        lead = bag.modes[:2] if len(bag.modes) > 2 else bag.modes[:1]
        keys, self.back = bag._distinct(numbers // prod(bag.modes[len(lead):]))
        if len(lead) == 2:
            self.first, self.second = keys // lead[1], keys % lead[1]
            left = cores[0][self.first][:, 0]
            right = cores[1][self.second]
            product = torch.bmm(left, right.flatten(2)).reshape(
                len(keys), left.shape[1] * right.shape[2], right.shape[3])
        else:
            self.first, product = keys, cores[0][keys][:, 0]
        self.lead, self.tails = len(lead), []
        self.chains = [product[self.back]]
        for k in range(len(lead), len(cores)):
            self.tails.append(numbers // prod(bag.modes[k + 1:]) % bag.modes[k])
            core = cores[k][self.tails[-1]]
            last = self.chains[-1]
            self.chains.append(torch.bmm(last, core.flatten(2)).reshape(
                len(numbers), last.shape[1] * core.shape[2], core.shape[3]))

    def rows(self) -> torch.Tensor:
        return self.chains[-1].flatten(1)

    def slopes(self, cores: Sequence[torch.Tensor], slope: torch.Tensor) -> list[torch.Tensor]:
        """The cores' gradients, given that of the rows; equation 6 of EL-Rec from the right to the left."""
        gradients = [torch.zeros_like(core) for core in cores]
        for k in reversed(range(self.lead, len(cores))):
            left, at = self.chains[k - self.lead], self.tails[k - self.lead]
            slope = slope.reshape(*left.shape[:2], prod(cores[k].shape[2:]))
            gradients[k].flatten(1).index_add_(0, at, torch.bmm(left.transpose(1, 2), slope).flatten(1))
            slope = torch.bmm(slope, cores[k][at].flatten(2).transpose(1, 2))
        # Slopes of equal first products, summed before they go on.
        product = slope.new_zeros(len(self.first), *slope.shape[1:]).index_add_(0, self.back, slope)
        if self.lead == 1:
            gradients[0].flatten(1).index_add_(0, self.first, product.flatten(1))
            return gradients
        left, right = cores[0][self.first][:, 0], cores[1][self.second].flatten(2)
        product = product.reshape(*left.shape[:2], right.shape[2])
        gradients[1].flatten(1).index_add_(0, self.second, torch.bmm(left.transpose(1, 2), product).flatten(1))
        gradients[0].flatten(1).index_add_(0, self.first, torch.bmm(product, right.transpose(1, 2)).flatten(1))
        return gradients
