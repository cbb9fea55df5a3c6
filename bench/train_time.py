"""The model of a training step against step times that Hotline, EL-Rec, SCARS and the frequency-aware cache publish.

Constants are fitted on one half of the published figures; the other half is predicted and the error stands beside each.
Which half a figure is in follows from its place alone: of the rows and columns of a table like a chessboard, of a
list every second one from the first. The fit minimises squared logarithms of predicted over published values, with a
weak pull (PULL) to the first guesses of START, which decides what no fitted figure does. Constants of the V100 are
shared by Hotline's server and EL-Rec's. Of the forms of the model the fitted half alone decided at first: each GPU
applies the gradients of all GPUs to its hot rows; the CPU has operators for each table (not a fixed time per step);
rows on the GPU cost by their bytes (not each the same). Rejected: CPU rows by bytes, PCIe for each pair of GPUs, a
parameter server with a cost per row, Taobao's networks launched for 21 steps.

Three predictions were off by 38 to 73 % then, all of several GPUs or of a pipeline. The papers have six mechanisms that
the model had not; each went into every system that has it, with no more constants:

    a mini-batch trains with the parameters of the one before: neighbours' GPU and all-reduce stages do not overlap
    the first GPU copies all its hot rows to each other one before a popular mini-batch (SCARS table 2: forward time
        grows in proportion to them; torch's replicate). Hotline has as many as its logger holds (table 7.4)
    tables that the CPU looks up launch no kernels on the GPU
    EL-Rec's server looks up all its tables with one operator (EL-Rec §V.A)
    XDL's networks run on the CPU (Hotline §7.2.2)
    DLRM exchanges sharded tables' vectors one table after the other, as it copies those of the CPU

The sum of squares of the fitted half fell from 0.844 to 0.746, with 18 constants instead of 19. The mechanisms were
sought with every figure in sight: errors of the predicted half do not test them, only the constants. The fitted half
does not decide on the copies of hot rows: with half as many the sum is 0.703 and the largest predicted error 57 %; with
an all-reduce of them instead 0.722 and 67 %; with none 0.740 and 95 % (Fig. 7.2, DLRM, 4 GPUs, each time). They are too
long for small mini-batches: on Terabyte in 1,024 the model has Hotline lose, where the thesis gains always. Rejected:
launches for all GPUs by one process, one after the other (1.34).

    python -m bench.train_time      prints the fitted constants, which stand in gen/training/constants.toml

Assumed: all runs scale weakly, a batch per GPU as the text gives it; averages are arithmetic over the paper's logs;
75 % of the samples are popular (Hotline chapter 5, EL-Rec §VI.B); an EL-Rec table's iterations per second are those
of all GPUs together; Taobao's 21 steps of a sequence each copy their 3 tables; SCARS' tables are in milliseconds (as
an epoch's steps show); a popular mini-batch of Terabyte asks for as many distinct cached rows as half its lookups.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from bench.framework import Row, at_most, bench, figure
from gen.training.systems import SYSTEMS, Machine, elrec, machine, transfer_s
from gen.training.workload import Workload

PULL = 0.02
#: Tables, lookups per sample, D, parameters of the networks, samples (Hotline tables 7.1, 7.2), tables above a million
#: rows (EL-Rec §VI.A).
LOGS = {"kaggle": (26, 26, 16, 287_500, 45e6, 5), "taobao": (63, 63, 16, 7_300, 10e6, 0),
        "terabyte": (26, 26, 64, 549_100, 80e6, 6), "avazu": (21, 21, 16, 281_400, 32e6, 2)}
COUNTS = (1, 2, 4)
EPOCHS = 10
LOGGER_ROWS = 8 * 2 ** 23 // 17     # 8 MB of a tag of 14 bits, a valid bit, a counter of 2   Source: Hotline §6.2, 7.4
#: Minutes of CPU-GPU transfers in ten epochs, 1, 2 and 4 GPUs.                        Source: Hotline table 7.6
TABLE_7_6 = {"kaggle": {"hybrid": (17.04, 17.91, 16.89), "hotline": (5.27, 6.79, 10.51)},
             "taobao": {"hybrid": (15.65, 15.21, 11.71), "hotline": (4.81, 3.30, 3.10)},
             "terabyte": {"hybrid": (62.47, 54.27, 47.27), "hotline": (23.65, 20.65, 16.78)},
             "avazu": {"hybrid": (11.96, 14.71, 11.51), "hotline": (3.41, 3.33, 4.78)}}
#: Times that Hotline is faster, on average of the logs, 1,024 samples per GPU.           Source: Hotline §7.2.2
FASTER = {"server": (2.86, 3.4, 3.45), "hybrid": (2.86, 3.3, 2.3)}
#: Most of a step that transfers take, %, 1 to 4 GPUs.                                    Source: Hotline §1.1, Fig. 1.2
SHARE = {("kaggle", "taobao", "avazu"): 25, ("terabyte",): 45}
EPOCHS_HOUR = {"hybrid": 5.3, "hotline": 20.8}          # Terabyte, 4 GPUs, batches of 16 K
ELREC_BATCH = 4096
ELREC_LOGS = ("avazu", "terabyte", "kaggle")
TTREC = (1.83 + 1.70) / 2                               # times a tensor train of TT-Rec takes longer, Fig. 17 and 18
FAE_POPULAR = 0.75
#: Iterations per second of a table of 40 million rows, D 128.                                 Source: EL-Rec Fig. 13
FIG_13 = (("elrec", 1, 489.76), ("elrec", 2, 938.86), ("elrec", 4, 1779.44), ("hugectr", 2, 896.64),
          ("hugectr", 4, 1658.92), ("torchrec", 2, 706.32), ("torchrec", 4, 1316.8))
SCARS_GPUS, SCARS_MB = 2, 256
BATCHES = (2048, 4096, 8192, 16384)
#: Milliseconds of a step.                                                             Source: SCARS tables 2, 3 and 4
TABLE_4, TABLE_3 = (93.68, 147.56, 264.39, 465.41), (56.65, 62.99, 62.91, 75.4)
TABLE_2 = ((128, 31.23), (512, 114.75), (1024, 197.22))
#: Minutes of an epoch.                                                                      Source: SCARS table 5
TABLE_5 = {"hybrid": (46.12, 38.33, 35.54, 30.10), "scars": (27.12, 15.10, 7.54, 4.52, 4.31)}
#: What the fit may move, and where it begins: guesses, with the papers at hand.
START = {
    "v100": {"row_s": 160e-9, "host_s": 100e-6, "copy_s": 28e-6, "copy_bytes_s": 4e9, "launch_s": 80e-6,
             "rows_bytes_s": 25e9, "server_flops_s": 500e9, "gather_ratio": 1.3, "tt_s": 1.5e-3, "shard_s": 1e-3,
             "sync_s": 0.2e-3, "cache_row_s": 30e-9},
    "titan_rtx": {"row_s": 900e-9, "host_s": 800e-6, "launch_s": 80e-6, "rows_bytes_s": 5e9}}
EXTRA = {"torchrec_shard_s": 2e-3, "scars_epoch": 60e6}     # constants of no machine
DIGITS = 3                                                  # of the constants that are kept


@dataclass(frozen=True)
class Constants:
    v100: Machine
    titan_rtx: Machine
    torchrec_shard_s: float = 2.66e-3       # fitted
    scars_epoch: float = 61.8e6             # samples, fitted


@dataclass(frozen=True)
class Published:
    """A published figure. paper: its key and place; fitted: the half it is in; ours: the model's value."""

    id: str
    what: str
    unit: str
    value: float
    fitted: bool
    ours: Callable[[Constants], float]


def hotline_log(name: str, gpus: int, batch: int) -> Workload:
    """A log of Hotline's or EL-Rec's, of which half the lookups ask for distinct rows."""
    tables, lookups, dim, dense, _, trains = LOGS[name]
    return Workload(batch, gpus, tables, lookups, dim, dense, tt_tables=trains, cached_rows=LOGGER_ROWS,
                    unique=batch * lookups / 2)


def _seconds(system: str, of: Workload, on: Machine) -> float:
    return SYSTEMS[system](of, on).seconds


def transfer_share(of: Workload, on: Machine) -> float:
    """Of a step of hybrid, in %."""
    step = SYSTEMS["hybrid"](of, on)
    return 100 * step.busy["PCIe"] / step.seconds


def _hotline() -> Iterator[Published]:
    for row, (log, systems) in enumerate(TABLE_7_6.items()):
        steps = EPOCHS * LOGS[log][4] / 1024
        for system, minutes in systems.items():
            for column, (gpus, value) in enumerate(zip(COUNTS, minutes, strict=True)):
                def transfers(c: Constants, log: str = log, system: str = system, gpus: int = gpus,
                              steps: float = steps) -> float:
                    whole = transfer_s(hotline_log(log, gpus, 1024 * gpus), c.v100)
                    share = 0.25 * c.v100.gather_ratio if system == "hotline" else 1
                    return whole * share * steps / gpus / 60
                yield Published(f"hotline.table76.{log}.{system}.{gpus}", f"Hotline table 7.6, {log}, {gpus} GPUs, "
                                f"{system}: transfers in ten epochs", "minutes", value, (row + column) % 2 == 0,
                                transfers)
    for row, (names, value) in enumerate(SHARE.items()):
        def share(c: Constants, names: tuple[str, ...] = names) -> float:
            return max(transfer_share(hotline_log(log, gpus, 1024 * gpus), c.v100) for log in names for gpus in COUNTS)
        yield Published(f"hotline.fig12.{names[-1]}", f"Hotline Fig. 1.2, {', '.join(names)}: transfers in a step of "
                        "hybrid, at most", "%", value, row % 2 == 0, share)
    for row, (system, ratios) in enumerate(FASTER.items()):
        for column, (gpus, value) in enumerate(zip(COUNTS, ratios, strict=True)):
            def faster(c: Constants, system: str = system, gpus: int = gpus) -> float:
                logs = [hotline_log(log, gpus, 1024 * gpus) for log in LOGS]
                return float(np.mean([_seconds(system, of, c.v100) / _seconds("hotline", of, c.v100) for of in logs]))
            yield Published(f"hotline.fig72.{system}.{gpus}", f"Hotline Fig. 7.2, {gpus} GPUs: Hotline over {system}, "
                            "on average", "times", value, (row + column) % 2 == 0, faster)
    for row, (system, value) in enumerate(EPOCHS_HOUR.items()):
        def epochs(c: Constants, system: str = system) -> float:
            steps = LOGS["terabyte"][4] / 16384
            return 3600 / steps / _seconds(system, hotline_log("terabyte", 4, 16384), c.v100)
        yield Published(f"hotline.fig74.{system}", f"Hotline Fig. 7.4, Terabyte, 4 GPUs, batches of 16 K: {system}",
                        "epochs/h", value, row % 2 == 0, epochs)


def _elrec() -> Iterator[Published]:
    def mean(ratio: Callable[[Workload, Machine], float], gpus: int = 1) -> Callable[[Constants], float]:
        return lambda c: float(np.mean([ratio(hotline_log(log, gpus, ELREC_BATCH * gpus), c.v100)
                                        for log in ELREC_LOGS]))

    def own(of: Workload, on: Machine) -> float:
        return elrec(of, on, resident=True).seconds

    def tables_apart(of: Workload, on: Machine) -> Machine:
        # DLRM copies each table's vectors to each other GPU, and their gradients back, one after the other.
        return on.replace(shard_s=on.shard_s + 2 * of.tables * (of.gpus - 1) * on.copy_s)

    def fae(of: Workload, on: Machine) -> float:
        return (FAE_POPULAR * _seconds("sharded", replace(of, gpus=1), on.replace(shard_s=1e-9))
                + (1 - FAE_POPULAR) * _seconds("hybrid", of, on))

    def pipeline(of: Workload, on: Machine, in_flight: int = 4) -> float:
        return elrec(replace(of, tt_tables=1), on, in_flight).seconds

    yield Published("elrec.fig11.dlrm", "EL-Rec Fig. 11, one V100: EL-Rec over DLRM, on average", "times", 3, True,
                    mean(lambda of, on: _seconds("hybrid", of, on) / own(of, on)))
    yield Published("elrec.fig11.fae", "EL-Rec Fig. 11, one V100: EL-Rec over FAE, on average", "times", 1.5, False,
                    mean(lambda of, on: fae(of, on) / own(of, on)))
    yield Published("elrec.fig11.ttrec", "EL-Rec Fig. 11, one V100: EL-Rec over TT-Rec, on average", "times", 1.4, True,
                    mean(lambda of, on: own(of, on.replace(tt_s=TTREC * on.tt_s)) / own(of, on)))
    yield Published("elrec.fig12.dlrm", "EL-Rec Fig. 12, 4 V100: EL-Rec over DLRM with sharded tables", "times", 1.4,
                    False, mean(lambda of, on: _seconds("sharded", of, tables_apart(of, on)) / own(of, on), 4))
    yield Published("elrec.fig16.dlrm", "EL-Rec Fig. 16: the pipeline over DLRM, on average", "times", 2.44, True,
                    mean(lambda of, on: _seconds("hybrid", of, on) / pipeline(of, on)))
    yield Published("elrec.fig16.sequential", "EL-Rec Fig. 16: the pipeline over one mini-batch at a time, on average",
                    "times", 1.3, False, mean(lambda of, on: pipeline(of, on, 1) / pipeline(of, on)))
    for number, (system, gpus, value) in enumerate(FIG_13):
        def rate(c: Constants, system: str = system, gpus: int = gpus) -> float:
            of = Workload(ELREC_BATCH * gpus, gpus, 1, 1, 128, 1, layers=0, tt_tables=1)
            on = c.v100.replace(shard_s=c.torchrec_shard_s) if system == "torchrec" else c.v100
            return gpus / (own(of, on) if system == "elrec" else _seconds("sharded", of, on))
        yield Published(f"elrec.fig13.{system}.{gpus}", f"EL-Rec Fig. 13, a table of 40 million rows, {gpus} V100: "
                        f"{system}", "iterations/s", value, number % 2 == 0, rate)


def _scars_step(system: str, batch: int, megabytes: int = SCARS_MB) -> Callable[[Constants], float]:
    of = replace(hotline_log("terabyte", SCARS_GPUS, batch), cached_rows=megabytes * 1_000_000 // 256, popular=1.0)
    return lambda c: 1e3 * _seconds(system, of, c.titan_rtx)


def _scars() -> Iterator[Published]:
    for system, at, values in (("hybrid", "table4", TABLE_4), ("scars", "table3", TABLE_3)):
        for number, (batch, value) in enumerate(zip(BATCHES, values, strict=True)):
            yield Published(f"scars.{at}.{batch}", f"SCARS {at}, batches of {batch:,}: a step of {system}", "ms", value,
                            number % 2 == 0, _scars_step(system, batch))
    for number, (megabytes, value) in enumerate(TABLE_2):
        yield Published(f"scars.table2.{megabytes}", f"SCARS table 2, {megabytes} MB of cached rows: a step", "ms",
                        value, number % 2 == 0, _scars_step("scars", 2048, megabytes))
    for system, minutes in TABLE_5.items():
        for number, value in enumerate(minutes):
            batch = BATCHES[0] << number

            def epoch(c: Constants, system: str = system, batch: int = batch) -> float:
                return c.scars_epoch / batch * _scars_step(system, batch)(c) / 6e4
            yield Published(f"scars.table5.{system}.{batch}", f"SCARS table 5, batches of {batch:,}: an epoch of "
                            f"{system}", "minutes", value, number % 2 == 0, epoch)


def _freqcache() -> Iterator[Published]:
    def ratio(c: Constants) -> float:
        # Of the lookups 5.7 % miss where 1.5 % of the rows are cached (papers.freqcache.fig9).
        of = Workload(16384, 1, 26, 26, 128, 1_000_000, cold=0.057 * 16384 * 26)
        return _seconds("sharded", of, c.v100.replace(shard_s=c.torchrec_shard_s)) / _seconds("cache", of, c.v100)
    yield Published("freqcache.torchrec", "frequency-aware cache §5.2.3, 1.5 % cached: throughput over TorchRec's with "
                    "all rows on the GPU", "times", 0.5, True, ratio)


def published() -> list[Published]:
    return [*_hotline(), *_elrec(), *_scars(), *_freqcache()]


def kept() -> Constants:
    """Those of gen/training/constants.toml."""
    return Constants(machine("v100"), machine("titan_rtx"))


def fit(figures: list[Published]) -> Constants:
    """On the fitted half alone."""
    from scipy.optimize import least_squares

    start, half = kept(), [each for each in figures if each.fitted]
    first = np.array([*(value for values in START.values() for value in values.values()), *EXTRA.values()])

    def of(logs: np.ndarray) -> Constants:
        values = iter((first * np.exp(logs)).tolist())
        machines = {name: getattr(start, name).replace(**{key: next(values) for key in keys})
                    for name, keys in START.items()}
        return Constants(**machines, **{key: next(values) for key in EXTRA})

    def residuals(logs: np.ndarray) -> np.ndarray:
        c = of(logs)
        return np.array([*(np.log(each.ours(c) / each.value) for each in half), *(PULL * logs)])

    return of(least_squares(residuals, np.zeros(len(first)), bounds=(-6, 6)).x)


def rounded(found: Constants) -> dict[str, dict[str, float]]:
    """The fitted constants, as constants.toml has them, by machine; those of none under ""."""
    return {**{name: {key: float(f"{getattr(getattr(found, name), key):.{DIGITS}g}") for key in keys}
               for name, keys in START.items()},
            "": {key: float(f"{getattr(found, key):.{DIGITS}g}") for key in EXTRA}}


def shapes(c: Constants) -> Iterator[Row]:
    """Hotline Fig. 7.3 and 7.5: bars without numbers."""
    for log in LOGS:
        for gpus in COUNTS:
            of = hotline_log(log, gpus, 1024 * gpus)
            yield figure(f"train.model.hotline.fig73.{log}.{gpus}", f"{log}, {gpus} GPUs, 1,024 samples each: PCIe in "
                         "a step of hybrid", round(transfer_share(of, c.v100), 1), "%")
    for batch in (1024, 4096, 16384):
        of = hotline_log("terabyte", 4, batch)
        yield figure(f"train.model.hotline.fig75.{batch}", f"terabyte, 4 GPUs, mini-batches of {batch:,}: Hotline over "
                     "hybrid", round(_seconds("hybrid", of, c.v100) / _seconds("hotline", of, c.v100), 2), "times")


@bench("train_time")
def rows() -> Iterator[Row]:
    """Published step times and speedups of training systems, by a model that is fitted on one half of them."""
    found, figures = fit(published()), published()
    new, old = rounded(found), kept()
    c = Constants(old.v100.replace(**new["v100"]), old.titan_rtx.replace(**new["titan_rtx"]),
                  new[""]["torchrec_shard_s"], new[""]["scars_epoch"])
    errors: dict[bool, list[float]] = {True: [], False: []}
    for each in figures:
        ours = each.ours(c)
        error = 100 * (ours / each.value - 1)
        errors[each.fitted].append(abs(error))
        yield figure(f"train.model.{each.id}", f"{each.what}; published {each.value:g}, "
                     f"{'fitted' if each.fitted else 'predicted'}, error {error:+.1f} %", float(f"{ours:.4g}"),
                     each.unit)
    said = f"{len(errors[False])} published figures predicted from {len(errors[True])} others"
    yield at_most("train.model.error", f"{said}: median error", round(float(np.median(errors[False])), 1), "%", 15)
    yield at_most("train.model.error.worst", f"{said}: largest error", round(max(errors[False]), 1), "%", 35)
    yield figure("train.model.error.fitted", "the fitted figures: median error",
                 round(float(np.median(errors[True])), 1), "%")
    swapped = [replace(each, fitted=not each.fitted) for each in figures]
    other = fit(swapped)
    yield figure("train.model.error.swapped", "the halves swapped, fitted anew: median error of the predicted",
                 round(100 * float(np.median([abs(each.ours(other) / each.value - 1) for each in swapped
                                              if not each.fitted])), 1), "%")
    yield at_most("train.model.constants", "kept constants of GPUs against those fitted anew, to three digits: largest "
                  "difference", round(100 * max(abs(value / getattr(getattr(old, name) if name else old, key) - 1)
                                                for name, values in new.items()
                                                for key, value in values.items()), 2), "%", 5)
    yield from shapes(c)


if __name__ == "__main__":
    for machine_name, constants in rounded(fit(published())).items():
        print(f"[{machine_name}]", *(f"{key} = {value:g}" for key, value in constants.items()), sep="\n")
