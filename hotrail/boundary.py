"""The boundary between the command and whoever calls it: every error is a sentence, every interrupt an end at once.

What a command raises ends here: one sentence on stderr and code 1, the traceback before it with --debug. An interrupt,
SIGINT or SIGTERM, ends the command with one line and code 130 or 143 within GRACE_S, whatever code it is in: processes
that it has started are ended, outputs that are not complete are removed (gen.base.staging). A reader that goes away, as
`head` does, is no error.
"""

import ctypes
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from select import POLLERR, poll
from typing import Any, NoReturn

import click

from gen.base import staging
from gen.base.extras import missing
from gen.base.pipes import with_names
from hotrail import as_json

GRACE_S = 0.5
GONE = 128 + signal.SIGPIPE         # as a shell has it
ENDS = {signal.SIGINT: "Interrupted.", signal.SIGTERM: "Terminated."}
OWN = {"bench", "fpga", "gen", "golden", "hotrail", "hw"}
#: Of each command, the page in docs that it is on.
PAGES = {"bench": "figures", "bitstream": "vitis-package", "cards": "real-card", "compile": "bundle",
         "completion": "command", "demo": "demo", "ecp5": "ecp5", "example": "install", "failfast": "timing",
         "hls": "hls",
         "hotline": "hotline", "lint": "architecture", "model": "plan", "package": "vitis-package", "papers": "papers",
         "plan": "plan", "profile": "profile", "refresh": "bundle", "run": "bundle", "sbom": "reliability",
         "scars": "scars", "size": "size", "synth": "architecture", "timing": "timing", "train-time": "train-time",
         "verilog": "architecture", "xo": "vitis-package"}
_PR_SET_CHILD_SUBREAPER = 36
_DEBUG = "hotrail.debug"


def plain(text: str) -> str:
    """Text that a terminal can show: what is not printable stands as an escape, lines stay lines."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape", "surrogatepass").decode()
                   for c in text)


def sentence(error: BaseException, given: list[str] | None = None) -> str:
    """What is said of an error, on one line. given: the command's words, of which those that are files are named for
    an error that nobody foresaw."""
    if isinstance(error, ModuleNotFoundError) and (told := missing(error.name, "this command")):
        text = told
    elif isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    elif isinstance(error, ValueError | OSError) or type(error).__module__.partition(".")[0] in OWN:
        text = str(error)
    elif isinstance(error, RuntimeError) and not isinstance(error, RecursionError | NotImplementedError):
        text = str(error)
    else:
        files = [each for each in given or () if os.path.exists(each)]
        text = (f"{', '.join(files) or 'the command'}: " + (
            "there is not enough memory" if isinstance(error, MemoryError) else
            f"an error that hotrail does not foresee, {type(error).__name__}: {str(error) or 'without a word'}"))
        text = f"{text.splitlines()[0]}; --debug shows where"
    lines = [line.strip() for line in plain(with_names(text)).splitlines() if line.strip()]
    return lines[0] + (" ... (--debug shows all)" if len(lines) > 1 else "") if lines else type(error).__name__


class Aside(logging.Handler):
    """Lines on stderr, of what takes long."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(plain(record.getMessage()), err=True)


class Bounded(click.Group):
    """A group of commands with this boundary around them; each of them takes --debug."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.params.append(_debug_option())

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        cmd.params.append(_debug_option())
        cmd.epilog = f"More: docs/{PAGES.get(name or cmd.name or '', 'command')}.md"
        super().add_command(cmd, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the main program of a process."""
        begun = logging.getLogger("hotrail.building")
        begun.setLevel(logging.INFO)
        begun.addHandler(Aside())
        with _watched():
            return super().__call__(*args, **kwargs)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["hotrail.given"] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with as_json.printed(ctx):
                return super().invoke(ctx)
        except click.ClickException as error:
            vars(error)["message"] = plain(error.message)
            raise
        except (click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            _end_now(ctx)
        except Exception as error:
            if _interrupted(error):
                _end_now(ctx)
            if isinstance(error, BrokenPipeError) and _reader_gone():
                # Nothing more can be said there, not at the end of the process either.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise click.exceptions.Exit(GONE) from None
            if ctx.meta.get(_DEBUG):
                click.echo(plain(traceback.format_exc()), err=True, nl=False)
            raise click.ClickException(sentence(error, ctx.meta["hotrail.given"])) from None


def _debug_option() -> click.Option:
    def keep(ctx: click.Context, option: click.Parameter, value: bool) -> None:
        if value:
            ctx.meta[_DEBUG] = True

    return click.Option(["--debug"], is_flag=True, expose_value=False, callback=keep,
                        help="Shows where an error came from.")


def _interrupted(error: BaseException | None) -> bool:
    """Whether an interrupt is behind an error, as behind an ImportError of a library that was being loaded."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return _heard.is_set()


def _reader_gone() -> bool:
    """Whether nobody reads stdout any more."""
    try:
        watch = poll()
        watch.register(sys.stdout.fileno(), 0)
        return any(event & POLLERR for _, event in watch.poll(0))
    except (OSError, ValueError):
        return False


def _end_now(ctx: click.Context) -> NoReturn:
    """After an interrupt that has unwound the command."""
    _clean_up()
    if ctx.meta.get(_DEBUG):
        click.echo(plain(traceback.format_exc()), err=True, nl=False)
    click.echo(ENDS[_interrupt()], err=True)
    if _watching.is_set():
        _leave()
    raise click.exceptions.Exit(128 + _interrupt())


def _clean_up() -> None:
    _end_children()
    staging.discard()


def _leave() -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(128 + _interrupt())


_watching, _heard = threading.Event(), threading.Event()     # the watch is there; it has heard an interrupt
_came: list[int] = []       # the signals of interrupts


def _interrupt() -> signal.Signals:
    """The signal of the first interrupt."""
    return signal.Signals([*_came, signal.SIGINT][0])


def _raise(number: int, _: object) -> None:
    _came.append(number)
    raise KeyboardInterrupt


def _end_at_once() -> NoReturn:
    """Without anything that waits for code which does not return."""
    _clean_up()
    os.write(2, f"{ENDS[_interrupt()]}\n".encode())
    os._exit(128 + _interrupt())


def _apart() -> None:
    """A process that was forked off has no watch: what it is sent is not said to this one."""
    if _watching.is_set():
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


os.register_at_fork(after_in_child=_apart)


@contextmanager
def _watched() -> Iterator[None]:
    """Ends the process soon after an interrupt, though code in C may not return for long, or something swallow the
    exception. Orphans of processes that were started become this one's children, so that they can be ended too."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    heard, told = os.pipe()
    os.set_blocking(told, False)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    sys.unraisablehook = _unraisable(sys.unraisablehook)

    def watch() -> None:
        while (number := os.read(heard, 1)[0]) not in ENDS:
            pass
        _came.append(number)
        _heard.set()
        time.sleep(GRACE_S)
        _end_at_once()

    _watching.set()
    threading.Thread(target=watch, name="interrupts", daemon=True).start()
    try:
        for number in ENDS:
            signal.signal(number, _raise)
        yield
    except KeyboardInterrupt:       # before the command began or after it ended
        _end_at_once()
    finally:
        for number in ENDS:
            signal.signal(number, signal.SIG_DFL)       # all is done: nothing is left to be unwound


def _unraisable(before: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """An interrupt that ends up where no exception can is left to the watch, without a traceback."""
    def hook(what: Any) -> None:
        if what.exc_type is not KeyboardInterrupt:
            before(what)

    return hook


def _end_children() -> None:
    """Ends the processes that this one has started, and theirs, until none is left or time is up."""
    until = time.monotonic() + GRACE_S / 2
    while (left := _children()) and time.monotonic() < until:
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with suppress(OSError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.005)


def _children() -> list[int]:
    """Processes that descend from this one and are not ended yet."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            fields = path.read_text("utf-8").rpartition(")")[2].split()
            if fields[0] != "Z":
                parents[int(path.parent.name)] = int(fields[1])
    found, more = set[int](), {os.getpid()}
    while more:
        more = {pid for pid, parent in parents.items() if parent in more} - found
        found |= more
    return sorted(found)
