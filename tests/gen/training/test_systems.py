"""Systems by hand-computed stages, a log's popular share, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from gen.data.profile import Heat, Profile, TableProfile
from gen.training.systems import GPUS, SYSTEMS, machine, predict, train_time, transfer_s
from gen.training.workload import Workload, workload

V100 = machine("v100")
WORK = Workload(2048, 2, 26, 26, 16, 1000, unique=20_000.0, cold=5000.0)


def table(name, counts, samples, lengths=(1,), bags=None):
    return TableProfile(name, len(counts), samples, Heat.of(counts), np.array(lengths), np.array(bags or [samples]))


def test_transfers_of_each_table_and_gpu():
    assert transfer_s(WORK, V100) == pytest.approx(
        2 * (26 * 2 * V100.copy_s + 2048 * 26 * 64 / V100.copy_bytes_s))


def test_a_hybrid_step_is_the_sum_of_its_stages():
    step = predict("hybrid", WORK, V100).step
    wanted = (26 * V100.host_s + 2048 * 26 * V100.row_s + transfer_s(WORK, V100) + 8 * V100.launch_s
              + 6 * 1024 * 1000 / V100.flops_s + 0.5 * (V100.sync_s + 8 * 1000 / V100.link_bytes_s))
    assert step.seconds == pytest.approx(wanted) and predict("hybrid", WORK, V100).pcie_bytes == 2 * 2048 * 26 * 64


def test_a_server_has_the_networks_on_the_cpu():
    server = predict("server", WORK, V100)
    assert set(server.step.busy) == {"CPU"} and server.pcie_bytes == server.link_bytes == 0
    wanted = 26 * V100.host_s + 2048 * 26 * V100.row_s + 6 * 2048 * 1000 / V100.server_flops_s
    assert server.step.seconds == pytest.approx(wanted)


def test_elrec_looks_up_the_tables_of_the_host_at_once():
    of = replace(WORK, tt_tables=6)
    step = SYSTEMS["elrec"](of, V100)
    assert step.busy["CPU"] == pytest.approx(V100.host_s + 20 / 26 * 2048 * 26 * V100.row_s)
    assert step.stages["optimizer"] == pytest.approx((6 + 8) * V100.launch_s / 3)


@pytest.mark.parametrize("gpus, copies", [(1, 0), (2, 1), (4, 3)])
def test_popular_mini_batches_begin_with_copies_of_all_cached_rows(gpus, copies):
    """Which training waits for: 15,000 of the 20,000 rows of a step are cached ones, whose gradients go back."""
    of = replace(WORK, gpus=gpus, cached_rows=10**6, popular=1.0)
    step, copied = SYSTEMS["hotline"](of, V100), copies * 64e6
    assert step.stages["cached rows to GPUs"] == pytest.approx(copied / V100.link_bytes_s)
    assert step.seconds == pytest.approx(sum(step.busy.values()))
    gradients = copies / gpus * (8 * gpus * 1000 + 15_000 * 64)
    assert predict("hotline", of, V100).link_bytes == pytest.approx(copied + gradients)
    assert step.stages["all-reduce"] == pytest.approx(
        copies / gpus * (V100.sync_s + (8 * 1000 + 15_000 * 64) / V100.link_bytes_s))


def test_hotline_without_cold_rows_needs_no_pcie():
    popular = predict("hotline", replace(WORK, popular=1.0), V100)
    mixed = predict("hotline", replace(WORK, popular=0.5), V100)
    assert popular.pcie_bytes == 0 and "PCIe" not in popular.step.busy
    assert mixed.step.busy["PCIe"] == pytest.approx(0.5 * V100.gather_ratio * transfer_s(WORK, V100))
    assert mixed.step.seconds >= popular.step.seconds * (1 - 1e-9)


@pytest.mark.parametrize("system", SYSTEMS)
def test_more_samples_never_take_less(system):
    on = replace(V100, systems=tuple(SYSTEMS))
    small, large = (predict(system, replace(WORK, batch=batch, tt_tables=3), on).step.seconds for batch in (2048, 8192))
    assert 0 < small <= large <= 4 * small


def test_what_does_not_fit_and_what_has_no_constants():
    large = predict("sharded", replace(WORK, rows=10**9), V100)
    assert large.step is None and large.lacks == "32.0 GB of rows per GPU exceed its 16 GB"
    assert "no published step times on titan_rtx" in predict("hotline", WORK, machine("titan_rtx")).lacks
    with pytest.raises(ValueError, match=f"no constants of the GPU 'h100'; --gpu is one of {', '.join(GPUS)}"):
        machine("h100")
    with pytest.raises(ValueError, match="there is no system 'xdl'"):
        predict("xdl", WORK, V100)
    with pytest.raises(ValueError, match="v100: row_s 0 must be above 0"):
        V100.replace(row_s=0)


def test_the_popular_share_of_a_log():
    """Three rows kept of all: 6, 5 and 4 accesses of 10 each; in a bag of two rows both must be among them."""
    profile = Profile("log", 10, {"a": table("a", [6, 4], 10), "b": table("b", [5, 3, 2], 10)})
    of = workload(profile, batch=4, gpus=2, dim=8, cached_rows=3)
    assert of.popular == pytest.approx(1.0 * 0.5) and of.popular_most == pytest.approx(0.5)
    bags = Profile("log", 5, {"a": table("a", [8, 2], 5, (2,), [5])})
    assert workload(bags, batch=4, gpus=1, dim=8, cached_rows=1).popular == pytest.approx(0.64)
    assert of.lookups == 2 and of.rows == 5 and 0 < of.cold < of.unique


def test_the_public_call():
    profile = Profile("log", 10, {"a": table("a", [6, 4], 10)})
    of, systems = train_time(profile, gpus=2, batch=64, dim=8)
    assert of.popular == 1 and [each.system for each in systems] == list(SYSTEMS)
    for wrong, sentence in (({"batch": 1, "gpus": 2}, "batch 1 must be at least gpus 2"),
                            ({"popular": 2.0}, "popular 2.0 must be from 0 to 1"), ({"gpus": 0}, "gpus 0 must be 1"),
                            ({"hot_mb": 0}, "hot_mb 0 must be 1 or more")):
        with pytest.raises(ValueError, match=sentence):
            train_time(profile, **wrong)
    empty = Profile("nothing", 10, {"a": table("a", [0, 0], 10, (0,))})
    with pytest.raises(ValueError, match="nothing has no lookups"):
        train_time(empty)
