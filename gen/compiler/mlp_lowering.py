"""Mini-batches of a network as operations of the MLP core."""

from collections.abc import Iterator

from gen.compiler.mlp_operations import LATENCY, THROUGHPUT, Load, Op, Span, Tiles
from gen.compiler.mlp_tiling import Chunk, LayerPlan, Plan, Sizes
from golden.mlp.order import blocks, is_twice, triangle
from hw.isa.mlp import ACTIVATION, ADDEND, TARGET

BURST = 4       # cycles that a row takes at least if it does not follow the one before it in memory


class MiniBatch:
    """Samples `start` to `start + count - 1` of a batch of `in_all`. sizes: `prefer` and `mode` of them count.

    modes: of layers, by name; what one mini-batch of that size finds out, others need not.
    """

    def __init__(self, plan: Plan, start: int, count: int, in_all: int, sizes: Sizes, modes: dict[str, int]):
        self.plan, self.config = plan, plan.config
        self.start, self.count, self.in_all = start, count, in_all
        self.samples = -(-count // plan.config.samples)
        self.sizes, self.modes = sizes, modes
        self.where = f"samples {start} to {start + count - 1}"
        self.held: dict[int, Span] = {}

    def operations(self) -> Iterator[Op]:
        """From the dense rows to the results, in order."""
        plan, bottoms = self.plan, self.plan.layers[:len(self.plan.network.bottom)]
        rows: Span | None = None
        span: Span | None = None
        for layer in bottoms[:-1]:
            to = self._results(layer)
            yield from self._layer(layer, rows, None, to, 0, {"target": TARGET.ROWS})
            rows = to
        last = bottoms[-1]
        if plan.network.interaction == "none":
            yield from self._layer(last, rows, None, None, 0, self._to_memory())
            return
        tops = plan.layers[len(bottoms):]
        if plan.is_dot:
            held, joined = self._features(), self._results(last)
            own = joined.lines
            joined.lines += plan.beats(len(triangle(self.config, plan.network.features + 1))) * self.samples
            # As a feature first: while the same layer runs once more, for the top, the last features are written.
            yield from self._layer(last, rows, None, held, 0, {"target": TARGET.FEATURE, "feature": 0})
            yield from self._layer(last, rows, None, joined, 0, {"target": TARGET.ROWS})
            yield self._interact(held, joined, own)
            rows = joined
        else:
            span, chunks = self._results(last), tops[0].chunks
            behind = chunks[0].beats * self.samples if len(chunks) == 1 else 0
            span.lines += behind
            yield from self._layer(last, rows, None, span, behind, {"target": TARGET.ROWS})
            rows = None
        for layer in tops[:-1]:
            to = self._results(layer)
            yield from self._layer(layer, rows, span, to, 0, {"target": TARGET.ROWS})
            rows, span = to, None
        yield from self._layer(tops[-1], rows, span, None, 0, self._to_memory())

    def _results(self, layer: LayerPlan) -> Span:
        """A span for a layer's results as plain rows."""
        return Span("rows", self.plan.beats(layer.groups * self.config.columns) * self.samples, self.samples)

    def _to_memory(self) -> dict[str, int]:
        return {"target": TARGET.MEMORY, "out": self.start * self.plan.out_beats, "out_stride": self.plan.out_beats}

    def _features(self) -> Span:
        """The features of every sample, feature 0 being left for the bottom's output."""
        plan, beats = self.plan, self.plan.sparse_beats
        line_stride = -(-(plan.network.features + 1) // self.config.rows) * beats
        held = Span("rows", self.samples * self.config.rows * line_stride, line_stride)
        held.loads = [Load("LOAD_ROWS", held, {
            "features_in": 1, "half": plan.half.features, "count": self.count, "stride": plan.sparse_stored,
            "row_beats": beats,
            "source": self.in_all * plan.dense_stored + self.start * plan.sparse_rows * plan.sparse_stored,
            "features": plan.network.features, "feature": 1, "line_stride": line_stride}, {"line": 0},
            f"features, {self.where}", self.count * plan.network.features * beats)]
        return held

    def _interact(self, held: Span, joined: Span, own: int) -> Op:
        """The pairs of features; they lie `own` lines behind the begin of `joined`."""
        config, beats, features = self.config, self.plan.sparse_beats, self.plan.network.features + 1
        steps = beats * config.words // config.width
        shapes = [max(config.rows, steps << is_twice(config, *tile)) for tile in blocks(config, features)]
        values = {"count": self.count, "row_beats": beats, "features": features, "line_stride": held.line_stride,
                  "to_line_stride": joined.line_stride}
        return Op("INTERACT", values, {"line": (held, 0), "to_line": (joined, own)}, f"dot products, {self.where}",
                  [held], [joined], shapes)

    def _layer(self, plan: LayerPlan, rows: Span | None, made: Span | None, to: Span | None, to_lines: int,
               target: dict[str, int]) -> Iterator[Op]:
        """The operations of a layer whose rows are `rows`, or loaded, part of them being in `made`.

        to, to_lines: where its results go on chip. target: the fields that say so.
        """
        config, layer = self.config, plan.layer
        if plan.name not in self.modes:
            self.modes[plan.name] = self._mode(plan)
        mode = self.modes[plan.name]
        for first in range(0, plan.groups, plan.slice):
            groups = min(plan.slice, plan.groups - first)
            partials = Span("addends", -(-groups // config.units) * config.units * self.samples * config.rows)
            for number, chunk in enumerate(plan.chunks):
                source = rows if rows is not None else self._load(plan, chunk, made)
                is_last = number == len(plan.chunks) - 1
                for begin, size in plan.blocks(first, groups):
                    ends = begin + size == plan.groups
                    last_columns = layer.outputs - (plan.groups - 1) * config.columns if ends else config.columns
                    values = {"mode": mode, "count": self.count, "line_stride": source.line_stride,
                              "steps": chunk.steps,
                              "groups": size, "last_columns": min(max(last_columns, 1), config.columns)}
                    spans: dict[str, tuple[Span, int]] = {"line": (source, 0)}
                    writes: list[Span] = []
                    spans["weight_line"] = self._weights(plan, chunk, begin, size)
                    at = (begin - first) * self.samples * config.rows
                    if number:
                        values["addend"] = ADDEND.PARTIAL
                        spans["addend_line"] = (partials, at)
                    elif plan.bias is not None:
                        values["addend"] = ADDEND.BIAS
                        spans["addend_line"] = (plan.bias, begin)
                    if not is_last:
                        values["target"] = TARGET.PARTIAL
                        spans["to_line"] = (partials, at)
                    else:
                        values |= target | {"activation": getattr(ACTIVATION, layer.activation.upper())}
                        beat = begin // config.groups_per_beat
                        if to is None:
                            values["out"] += beat
                        else:
                            line_stride = 1 if target["target"] == TARGET.FEATURE else to.line_stride
                            values["to_line_stride"] = to.line_stride
                            spans["to_line"] = (to, to_lines + beat * line_stride)
                            writes = [to]
                    about = f"layer {plan.name}, {self.where}"
                    if len(plan.chunks) > 1:
                        about += f", part {number + 1} of {len(plan.chunks)}"
                    if size < plan.groups:
                        about += f", outputs {begin * config.columns} on"
                    yield Op("LAYER", values, spans, about, [source], writes)

    def _mode(self, plan: LayerPlan) -> int:
        """The mode in which the layer takes fewer slots."""
        if self.sizes.mode is not None:
            return self.sizes.mode
        slots = {}
        for mode in (THROUGHPUT, LATENCY):
            ops = [Op("LAYER", {"mode": mode, "count": self.count, "steps": chunk.steps,
                                "groups": size}, {}, "", ())
                   for chunk in plan.chunks for _, size in plan.blocks(0, plan.groups)]
            slots[mode] = sum(Tiles(self.config, op).in_all for op in ops)
        return min(slots, key=lambda mode: (slots[mode], mode != self.sizes.prefer))

    def _weights(self, plan: LayerPlan, chunk: Chunk, begin: int, groups: int) -> tuple[Span, int]:
        """Where the weights of some column groups are, and how far behind the begin of that."""
        if chunk.resident is not None and begin < plan.kept:
            return chunk.resident, begin // self.config.units * chunk.steps
        span = self.held.get(id(chunk))
        if span is None:
            span = Span("weights", -(-groups // self.config.units) * chunk.steps)
            span.loads = [self.plan.weights_load(plan, chunk, span, begin, groups)]
            if groups == plan.groups:
                self.held[id(chunk)] = span     # for the layer that runs twice
        return span, 0

    def _load(self, plan: LayerPlan, chunk: Chunk, made: Span | None) -> Span:
        """The span that holds the rows of a chunk."""
        if made is not None and not chunk.beats:
            return made
        is_dense, of = plan is self.plan.layers[0], self.plan
        beats, stored, half = ((of.dense_beats, of.dense_stored, of.half.dense) if is_dense else
                               (of.sparse_beats, of.sparse_stored, of.half.features))
        base = 0 if is_dense else self.in_all * of.dense_stored
        span = made if made is not None and len(plan.chunks) == 1 else Span("rows", chunk.beats * self.samples,
                                                                           self.samples)
        span.loads = [Load("LOAD_ROWS", span, {
            "half": half, "count": self.count, "source": base + self.start * stored + chunk.first // (1 + half),
            "stride": stored, "row_beats": chunk.beats, "features": 1, "line_stride": span.line_stride}, {"line": 0},
            f"{'dense rows' if is_dense else 'features'}, {self.where}",
            self.count * (chunk.beats if chunk.beats == beats else max(chunk.beats, BURST)))]
        return span
