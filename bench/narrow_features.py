"""Features in float16 on their way to the MLP card: how long a batch takes, and what of the link it takes."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.framework import Row, bench, figure
from fpga.api.network import MlpNetwork, Network
from gen.model.device import Device

PRESET, DEVICE, BATCH = "smartssd", "smartssd", 128
MODELS = (("rm0", 64), ("rm0", 256), ("rm3", 64), ("rm3", 256))


class Took(NamedTuple):
    """Cycles of a batch, its transfers included, and of the link to the card alone; predictions."""

    cycles: int
    link_cycles: int
    found: NDArray[np.float32]


def batch(model: str, dim: int, features: str) -> Took:
    """The second of two batches on the card's twin, whose cycles are the card's."""
    network, random = Network.model(f"screc_{model}", dim=dim), np.random.default_rng(1)
    given = (random.standard_normal((BATCH, network.inputs), np.float32),
             random.standard_normal((BATCH, network.features, dim), np.float32))
    with MlpNetwork(network, card="twin", preset=PRESET, batch=BATCH, features=features, device=DEVICE) as net:
        net(*given)
        begun = net.card.counters()["cycles"]
        found = net(*given)
        return Took(net.card.counters()["cycles"] - begun, net.link.in_cycles, found)


@bench("narrow_features")
def narrow_features() -> Iterator[Row]:
    """SCRec's networks with features in float16 beside float32."""
    clock = Device.load(DEVICE).kernel_mhz
    for model, dim in MODELS:
        full, half = (batch(model, dim, form) for form in ("float32", "float16"))
        name, what = f"narrow.features.{model}.d{dim}", f"{model.upper()}, D = {dim}, batches of {BATCH}"
        yield figure(name, f"{what}, features in float16: of a batch's time in float32, transfers included",
                     round(100 * half.cycles / full.cycles, 1), "%")
        for form, took in (("fp32", full), ("fp16", half)):
            yield figure(f"{name}.{form}", f"{what}, features in {form}: a batch", round(took.cycles / clock), "us")
            yield figure(f"{name}.{form}.link", f"{what}, features in {form}: of that the link to the card",
                         round(took.link_cycles / clock), "us")
        yield figure(f"{name}.error", f"{what}: the most that a prediction changes",
                     float(np.abs(half.found - full.found).max()), "")
