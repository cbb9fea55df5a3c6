"""Whether cards pay off at a load: cards, cores of a server and GPUs by number, watts and money, and a sentence.

Cards are planned, and plans are off: `spread` is the time of a batch as planned over that of twins, from the least to
the most that was measured (machines.toml), so a card bears between spread[0] and spread[1] times what the plan says.
Cores are bought one by one, as the server that they are in does other work too; cards by the group that shares a copy
of the model; GPUs one by one. Latency is held against the limit for cards alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf

from fpga.api.servers import facts, gpu, needs, server
from gen.data.profile import Profile
from gen.model.device import Device
from gen.model.recommender import Recommender
from gen.planner.plan import duration, many
from gen.planner.sizing import Copy

HOURS = 8760        # of a year
CLOSE = 1e-9        # of a device, so that 2.0000000001 of them are two


@dataclass(frozen=True)
class Prices:
    """US dollars of a card, a server and a GPU, None: not known; of a kilowatt-hour. sources: where they are from."""

    card: float | None
    server: float | None
    gpu: float | None
    kwh: float
    years: float = 3.0
    sources: tuple[str, ...] = ()

    @classmethod
    def given(cls, device: str, *, card: float | None = None, server_usd: float | None = None,
              gpu_usd: float | None = None, kwh: float | None = None, years: float = 3.0) -> "Prices":
        """What is not given is that of machines.toml. device: its name."""
        told = facts()
        known, listed = told["cards"].get(device, {}), []
        for value, what, entry, option in (
                (card, "a card", known, "--card-price"), (server_usd, "a server", told["server"], "--server-price"),
                (gpu_usd, "a GPU", told["gpu"], "--gpu-price"),
                (kwh, "a kilowatt-hour", told["electricity"], "--kwh-price")):
            usd = entry.get("usd", entry.get("usd_per_kwh"))
            if value is not None:
                listed.append(f"{what}: USD {value:,g}, as given ({option})")
            elif usd is None:
                listed.append(f"{what}: no price is known ({option})")
            else:
                listed.append(f"{what}: USD {usd:,g} ({option}). {entry['source']}")
        return cls(known.get("usd") if card is None else card,
                   told["server"]["usd"] if server_usd is None else server_usd,
                   told["gpu"]["usd"] if gpu_usd is None else gpu_usd,
                   told["electricity"]["usd_per_kwh"] if kwh is None else kwh, years, tuple(listed))


@dataclass(frozen=True)
class Choice:
    """Devices of one kind that bear a load.

    name: of the kind; noun: of one, as "card". groups: (devices, samples per second that they bear together), of each
    number of devices that can be added at once. floor: devices that it takes at any load, as a fraction. spread: of
    what is borne over what `groups` says, least and most. watts: of a device, least and most; usd: its price, None: not
    known. limit: what decides the number.
    """

    name: str
    noun: str
    groups: tuple[tuple[int, float], ...]
    floor: float
    spread: tuple[float, float]
    watts: tuple[float, float]
    usd: float | None
    limit: str = ""

    @property
    def enough(self) -> bool:
        """Whether any number of them bears a load."""
        return any(rate for _, rate in self.groups)

    def number(self, qps: float, of_rate: float = 1.0) -> int:
        """The fewest devices, where each bears of_rate times what `groups` says. Raises ValueError: no number of them
        is enough"""
        return max(1, ceil(self.floor), self._fewest(qps, of_rate)[0])

    def need(self, qps: float, of_rate: float = 1.0) -> float:
        """How many of `number` the load takes, as a fraction."""
        return max(self.floor, self._fewest(qps, of_rate)[1])

    def _fewest(self, qps: float, of_rate: float) -> tuple[int, float]:
        found = [(devices * ceil(groups - CLOSE), devices * groups) for devices, rate in self.groups if rate
                 for groups in [qps / (rate * of_rate)]]
        if not found:
            raise ValueError(f"no number of {self.name} is enough")
        return min(found)

    def numbers(self, qps: float) -> tuple[int, int, int]:
        """Least, as estimated, most."""
        return self.number(qps, self.spread[1]), self.number(qps), self.number(qps, self.spread[0])

    def power(self, qps: float) -> tuple[float, float]:
        """Watts, least and most."""
        least, _, most = self.numbers(qps)
        return least * self.watts[0], most * self.watts[1]

    def money(self, qps: float, prices: Prices) -> tuple[float, float] | None:
        """US dollars over the years, least and most; None where its price is not known."""
        if self.usd is None:
            return None
        least, _, most = self.numbers(qps)
        low, high = (self.usd + self.energy(watts, prices) for watts in self.watts)
        return least * low, most * high

    def energy(self, watts: float, prices: Prices) -> float:
        """US dollars of the energy of a device over the years."""
        return watts / 1000 * HOURS * prices.years * prices.kwh

    def growth(self, qps: float) -> tuple[float, float, float]:
        """To how many times itself the load may grow until the estimated number is not enough: by the spread least, as
        estimated, by the spread most. Below 1: it may be too few already."""
        number = self.number(qps)
        least, most = self.spread
        borne = max(number // devices * rate for devices, rate in self.groups)
        return borne * least / qps, borne / qps, borne * most / qps


@dataclass(frozen=True)
class Decision:
    """kind: "none" (no cards meet the limit), "core" (one core is enough), "others" (cards cost more), "cards" (they
    cost less), "undecided" (within the spread), "unpriced". break_even: US dollars below which a card would pay off, at
    the most cards of the spread; None where the others' price is not known."""

    kind: str
    sentence: str
    break_even: float | None
    choices: tuple[Choice, ...]
    prices: Prices
    qps: float
    spread: tuple[float, float]

    @property
    def cards(self) -> Choice:
        return self.choices[0]


def decide(copies: Sequence[Copy], device: Device, profile: Profile, qps: float, core_s: float,
           prices: Prices, limit_s: float = inf) -> Decision:
    """core_s: seconds of a core for a sample; limit_s: within which a sample must have its result."""
    told, model, power = facts()["plan_over_twin"], copies[0].plan.model, device.power
    spread = (float(told["low"]), float(told["high"]))
    groups = tuple((device.boards(len(each.plan.cards)), each.rate) for each in copies)
    cards = Choice(f"cards, {device.name}", "card", groups, 0.0, spread,
                   (power.fpga_idle_w + power.drive_idle_w, power.slot_w), prices.card, _limit(copies))
    choices = (cards, _cores(model, profile, qps, core_s, prices), _gpus(model, profile, qps, prices))
    others = choices[1:] if core_s <= limit_s else choices[2:]
    least = [money[1] for each in others if (money := each.money(qps, prices))]
    break_even = None
    if least and cards.enough:
        break_even = min(least) / cards.numbers(qps)[2] - cards.energy(cards.watts[1], prices)
    kind, sentence = _sentence(choices, others, qps, prices, break_even)
    if core_s > limit_s:
        sentence += f"; cores do not count, as one takes {duration(core_s)} for a sample, longer than the limit"
    return Decision(kind, sentence, break_even, choices, prices, qps, spread)


def _limit(copies: Sequence[Copy]) -> str:
    """The stage that binds the fewest cards that bear the load."""
    fit = [each for each in copies if each.number]
    return min(fit, key=lambda each: each.cards).stages.slowest if fit else "the latency"


def _cores(model: Recommender, profile: Profile, qps: float, core_s: float, prices: Prices) -> Choice:
    machine = server()
    need = needs(machine, model, profile, qps, core_s)
    room, *others = need
    slowest = max(others, key=lambda name: need[name])
    rate = qps / (need[slowest] * machine.cores) if need[slowest] else inf
    return Choice(f"cores of a CPU server, {machine.name}", "core", ((1, rate),), need[room] * machine.cores,
                  (1.0, 1.0), (machine.watts / machine.cores,) * 2,
                  None if prices.server is None else prices.server / machine.cores, max(need, key=lambda k: need[k]))


def _gpus(model: Recommender, profile: Profile, qps: float, prices: Prices) -> Choice:
    machine = gpu()
    need = needs(machine, model, profile, qps, 0.0)
    room, bandwidth = need
    rate = qps / need[bandwidth] if need[bandwidth] else inf
    return Choice(f"GPUs, {machine.name}", "GPU", ((1, rate),), need[room], (1.0, 1.0), (machine.watts,) * 2,
                  prices.gpu, max(need, key=lambda k: need[k]))


def _sentence(choices: Sequence[Choice], others: Sequence[Choice], qps: float, prices: Prices,
              break_even: float | None) -> tuple[str, str]:
    """others: those among the choices that cards are held against."""
    cards, cores, _ = choices
    if cores in others and cores.number(qps) <= 1:
        return "core", f"one core serves this ({part(cores.need(qps), 2)} of one, by {cores.limit}): no card pays off"
    if not cards.enough:
        return "none", (f"no number of cards answers within the limit; by throughput the load takes "
                        f"{many(cores.number(qps), 'core')}")
    least, number, most = cards.numbers(qps)
    low, need, high = (cards.need(qps, of_rate) for of_rate in (cards.spread[1], 1.0, cards.spread[0]))
    span = f": {least:,} to {many(most, 'card')}" if least != most else ""
    count = (f"{many(number, 'card')} (the load takes {need:.3g} by the plan, {low:.3g} to {high:.3g} by the spread of "
             f"plans over twins{span})")
    priced = [(money, each) for each in others if (money := each.money(qps, prices))]
    own = cards.money(qps, prices)
    if not priced or own is None:
        text = f"; a card pays off below USD {break_even:,.0f}" if break_even and break_even > 0 else ""
        return "unpriced", f"{count}{text}; name the prices to compare (--card-price)"
    money, other = min(priced, key=lambda pair: pair[0][1])
    beside = (f"cards cost {_usd(own)} over {prices.years:g} years, {many(other.number(qps), other.noun)} "
              f"{_usd(money)}")
    if own[0] >= money[1]:
        limit = (f"; a card would have to cost less than USD {break_even:,.0f}" if break_even and break_even > 0
                 else "; a card would not at any price")
        return "others", f"no card pays off: {beside}{limit}. It would be {count}"
    if own[1] <= money[0]:
        return "cards", f"cards pay off: {beside}. It is {count}"
    return "undecided", (f"undecided: {beside}; `hotrail run --card twin` on this log narrows the spread. "
                         f"It is {count}")


def part(number: float, digits: int = 3) -> str:
    """Of a device, or so many devices: 0.332, 58.1, "< 0.001"."""
    return "< 0.001" if 0 < number < 0.001 else f"{number:.{digits}g}"


def _usd(money: tuple[float, float]) -> str:
    low, high = (f"{float(f'{each:.3g}'):,.0f}" for each in money)
    return f"USD {low}" if low == high else f"USD {low} to {high}"
