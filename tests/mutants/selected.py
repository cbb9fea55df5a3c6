"""What the woven units of a copy are elaborated with: every mutant at once, and a number that says which is there.

`tests.mutants.weave` writes the calls of `value`, `condition` and `declared` into the units. The number comes from an
instance of `hotrail_mutant` in each module, which reads it from a file as a simulation begins; 0 is the sound unit.
`install` has to be called before anything is converted.
"""

import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from amaranth.hdl import Const, Fragment, Instance, Mux, ResetInserter, ResetSignal, Signal, Value
from amaranth.hdl._ast import Assign, Slice, Switch
from amaranth.hdl._xfrm import LHSMaskCollector

BITS = 16
MODULE = "hotrail_mutant"
FILE = "mutant"     # in the folder that a simulation begins in: the number
BY_ITSELF = "by itself"     # verdict of a test that has to run once more for each mutant
SELECTED = Signal(BITS, name="mutant")
TEXT = f"""module {MODULE}(number);
  output [{BITS - 1}:0] number;
  reg [{BITS - 1}:0] number;
  integer file;
  initial begin
    number = {BITS}'d0;
    file = $fopen("{FILE}", "r");
    if (file != 0) begin
      if ($fscanf(file, "%d", number) != 1) number = {BITS}'d0;
      $fclose(file);
    end
  end
endmodule
"""
# Bits of a woven assignment's target that are constant: Yosys writes a block for them that nothing sets off.
_CONSTANT = re.compile(r"(?m)^  always @\*\n(?=    \S+ ?(?:\[\d+(?::\d+)?\])? = \d+'h\w+;$)")
_met: dict[int, str] = {}               # what became of a mutant as the units were elaborated
_declared: dict[int, tuple[Signal, int]] = {}   # by the signal's identity: it, and the mutant that takes its reset away


def value(number: int, make: Callable[[], Any]) -> Any:
    """A statement's value with a mutant; none where Python refuses it."""
    try:
        made = make()
    except Exception:
        _met[number] = "refused"
        return []
    _met.setdefault(number, "elaborated")
    return made


def condition(mutants: dict[int, Callable[[], Any]], sound: Any) -> Value:
    """A condition, with one of its mutants where that is selected."""
    chosen = Value.cast(sound).bool()
    for number, make in mutants.items():
        try:
            changed = Value.cast(make()).bool()
        except Exception:
            _met[number] = "refused"
            continue
        _met.setdefault(number, "elaborated")
        chosen = Mux(SELECTED == number, changed, chosen)
    return chosen


def declared(number: int, signal: Signal) -> Signal:
    """A signal that a mutant keeps through resets, if it is a register."""
    _declared[id(signal)] = signal, number
    _met.setdefault(number, "no register")
    return signal


def _unless(number: int, statement: Any) -> Switch:
    return Switch(SELECTED, [(number, [], None), (None, [statement], None)])


def _kept(statement: Any) -> Any:
    """An assignment of a reset value, with the mutant that leaves it out."""
    if isinstance(statement, Assign):
        target = statement.lhs.value if isinstance(statement.lhs, Slice) else statement.lhs
        if id(target) in _declared:
            return _unless(_declared[id(target)][1], statement)
    return statement


def _resets(fragment: Fragment) -> set[int]:
    """Writes the resets of declared registers as statements; returns whose Amaranth's own must not be made."""
    written = set()
    for domain, statements in list(fragment.statements.items()):
        if domain == "comb":
            continue
        masks = LHSMaskCollector()
        masks.visit_stmt(statements)
        cleared = []
        for signal, begin, end in masks.chunks():
            if id(signal) not in _declared or signal.reset_less:
                continue
            number = _declared[id(signal)][1]
            _met[number] = "elaborated"
            written.add(id(signal))
            init = Const(signal.init, signal.shape())
            assign = signal.eq(init) if (begin, end) == (0, None) else signal[begin:end].eq(init[begin:end])
            cleared.append(_unless(number, assign))
        if cleared:
            fragment.add_statements(domain, Switch(ResetSignal(domain, allow_reset_less=True), [(1, cleared, None)]))
    for part, _, _ in fragment.subfragments:
        written |= _resets(part)
    return written


class _Fragment:
    """In the place of Amaranth's own where units are converted."""

    @staticmethod
    def get(component: Any, platform: Any) -> Fragment:
        fragment = Fragment.get(component, platform)
        for key in _resets(fragment):
            _declared[key][0]._reset_less = True
        fragment.add_subfragment(Fragment.get(Instance(MODULE, o_number=SELECTED), platform), "mutant_number")
        with open(Path(os.environ["HOTRAIL_MUTANTS"]) / "met", "a", encoding="utf-8") as file:
            file.writelines(f"{number} {word}\n" for number, word in sorted(_met.items()))
        return fragment


def _by_itself() -> None:
    """Notes that the present test has to run once more for each mutant."""
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
    with open(Path(os.environ["HOTRAIL_MUTANTS"]) / os.environ["HOTRAIL_MUTANTS_VERDICTS"], "a") as file:
        file.writelines(json.dumps({"mutant": int(number), "test": test, "verdict": BY_ITSELF}) + "\n"
                        for number in os.environ["HOTRAIL_MUTANTS_OF"].split(","))


class _Processes:
    """In the place of `subprocess` where simulations are started: besides the sound unit, the mutants that are still
    to be found are simulated (tests.mutants.forked), or one alone."""

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)

    @staticmethod
    def run(command: list[str], *, cwd: Any, env: dict[str, str], **how: Any) -> Any:
        if alone := os.environ.get("HOTRAIL_MUTANT"):
            (Path(cwd) / FILE).write_text(alone, "utf-8")
        elif any(value.endswith(".npy") for value in env.values()):     # what is left there is judged behind it
            _by_itself()
        elif "COCOTB_TEST_MODULES" in env:
            env = env | {"COCOTB_TEST_MODULES": f"{env['COCOTB_TEST_MODULES']},tests.mutants.forked",
                         "HOTRAIL_MUTANTS_TEST": os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]}
            how["preexec_fn"] = None    # each copy has a limit of its own
        return subprocess.run(command, cwd=cwd, env=env, **how)


def _played(command: list[str], **how: Any) -> Any:
    """In the place of `call` where a player is started (gen.rtl.play): the sound unit, or one mutant alone. The test
    that judges what was played is run again with each."""
    from gen.base.tools import call

    with tempfile.TemporaryDirectory() as folder:
        if alone := os.environ.get("HOTRAIL_MUTANT"):
            (Path(folder) / FILE).write_text(alone, "utf-8")
        else:
            _by_itself()
        return call(command, cwd=Path(folder), **how)


def _save(texts: dict[str, str], top: str) -> None:
    """For comparisons with the sound unit; the model's name is its content's."""
    content = "".join(texts[file] for file in sorted(texts))
    name = hashlib.sha256(content.encode()).hexdigest()[:12]
    folder = Path(os.environ["HOTRAIL_MUTANTS"]) / "texts" / os.environ["HOTRAIL_MUTANTS_VERDICTS"] / name
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        (folder / file).write_text(text, "utf-8")
    (folder / "top").write_text(top, "utf-8")


def install() -> None:
    """Units are converted with the number's source, models built with its Verilog, and simulations started with all
    mutants."""
    from gen.rtl import play, verilog
    from verif.bench import runner

    insert = ResetInserter._insert_control

    def inserted(self: Any, fragment: Fragment, domain: str, masks: Any) -> None:
        insert(self, fragment, domain, masks)
        last = fragment.statements[domain][-1]
        fragment.statements[domain][-1] = Switch(
            last.test, [(patterns, [_kept(statement) for statement in statements], place)
                        for patterns, statements, place in last.cases])

    def built(build: Callable[..., Any]) -> Callable[..., Any]:
        def with_number(texts: Any, metadata: Any, name: str, **more: Any) -> Any:
            texts = {file: _CONSTANT.sub("  initial\n", text) for file, text in texts.items()}
            _save(texts, metadata["top"])
            return build({**texts, f"{MODULE}.v": TEXT}, metadata, name, **more)
        return with_number

    ResetInserter._insert_control = inserted
    verilog.Fragment = _Fragment
    runner.build_texts, play.build_texts = built(runner.build_texts), built(play.build_texts)
    runner.subprocess = _Processes()        # type: ignore[assignment]
    play.call = _played                     # type: ignore[assignment]
