"""What a Vitis HLS compiler cannot take, looked for in C++ text: heap, recursion, pointers to functions, loops without
a bound. By the text alone, for sources in the style of gen/hls/cpp."""

import re

FORBIDDEN = {
    "heap": r"\b(new|delete|malloc|calloc|realloc|free|unique_ptr|shared_ptr)\b",
    "the standard library": r"\bstd::",
    "a virtual call": r"\b(virtual|dynamic_cast|typeid)\b",
    "exceptions": r"\b(throw|try|catch)\b",
    "floating point": r"\b(float|double)\b",
    "a jump": r"\b(goto|setjmp|longjmp)\b",
    "a pointer to a function": r"\(\s*\*\s*\w+\s*\)\s*\(",
    "the system": r"\b(printf|exit|abort|assert|thread|mutex)\b",
}
LOOP = re.compile(r"\b(for|while)\s*\(")
FUNCTION = re.compile(r"(?m)^(?:template <[^>]*>\n?)?\s*(?:inline|extern \"C\" void)\s[^;{}]*?\b(\w+)\([^;{}]*\)\s*{")
KEYWORDS = {"int", "bool", "for", "const", "larger", "smaller", "uint32_t", "uint64_t"}


def _plain(text: str) -> str:
    """Without comments and texts."""
    parts = re.compile(r'//[^\n]*|/\*.*?\*/|"[^"\n]*"', re.DOTALL)
    return parts.sub(lambda found: " " if found[0][0] == "/" else '""', text)


def _closing(text: str, start: int, pair: str) -> int:
    """Where the bracket that opens at `start` closes."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == pair[0]) - (text[at] == pair[1])
        if not depth:
            return at
    raise ValueError("a bracket is not closed")


def _loops(text: str) -> list[str]:
    """Loops whose bound is not a constant and that have no loop_tripcount as the first thing in them."""
    bad = []
    for loop in LOOP.finditer(text):
        end = _closing(text, loop.end() - 1, "()")
        head, after = text[loop.end():end], text[end + 1:end + 400]
        body = after.partition("{")[2] if re.match(r"\s*{", after) else after
        leading = re.match(r"(?:\s*#pragma[^\n]*\n)*", body)
        if leading and "loop_tripcount" in leading[0]:
            continue
        names = set(re.findall(r"\b[A-Za-z_]\w*", head)) - KEYWORDS
        own = set(re.findall(r"\bint (\w+)", head))
        outer = set(re.findall(r"for \(int (\w+) = [^;]*; [^;]*[A-Z0-9_ -]+; \w+(?:\+\+|--)\)", text[:loop.start()]))
        if loop[1] == "while" or not all(name in own | outer or name.isupper() for name in names):
            bad.append(" ".join(text[loop.start():end + 1].split()))
    return bad


def _functions(text: str) -> dict[str, str]:
    """The bodies of functions; of one name together."""
    bodies: dict[str, str] = {}
    for found in FUNCTION.finditer(text):
        body = text[found.end():_closing(text, found.end() - 1, "{}")]
        bodies[found[1]] = bodies.get(found[1], "") + body
    return bodies


def _called(body: str) -> set[str]:
    return set(re.findall(r"\b(\w+)(?:<[\w, ]*>)?\(", body))


def _reached(bodies: dict[str, str]) -> dict[str, set[str]]:
    """All that each function calls, directly or not."""
    reached = {name: _called(body) for name, body in bodies.items()}
    for _ in reached:
        for called in reached.values():
            called.update(*(reached[each] for each in list(called) if each in reached))
    return reached


def _pipelined(text: str, bodies: dict[str, str], reached: dict[str, set[str]]) -> list[str]:
    """Pipelined loops with a loop in them that cannot be unrolled, in functions that they call too."""
    varying = {name for name in bodies
               if any("loop_tripcount" in bodies.get(each, "") for each in {name, *reached[name]})}
    bad = []
    for loop in LOOP.finditer(text):
        head = _closing(text, loop.end() - 1, "()") + 1
        if not (opened := re.match(r"\s*{", text[head:head + 20])):
            continue
        body = text[head + opened.end():_closing(text, head + opened.end() - 1, "{}")]
        leading = re.match(r"(?:\s*#pragma[^\n]*\n)*", body)
        rest = body[leading.end():] if leading else body
        if leading and "HLS pipeline" in leading[0] and ("loop_tripcount" in rest or _called(rest) & varying):
            bad.append(" ".join(text[loop.start():head].split()))
    return bad


def offences(text: str) -> list[str]:
    """What a compiler for hardware cannot take in the text of all sources together, a sentence each."""
    plain = _plain(text)
    found = [f"{what}: {word[0]}" for what, pattern in FORBIDDEN.items() for word in re.finditer(pattern, plain)]
    found += [f"a loop without a bound: {loop}" for loop in _loops(plain)]
    bodies = _functions(plain)
    reached = _reached(bodies)
    found += [f"a loop that varies in a pipelined one: {loop}" for loop in _pipelined(plain, bodies, reached)]
    return found + [f"recursion: {name}" for name, called in sorted(reached.items()) if name in called]
