"""Call stacks of the running broker, as perf saw them, brought down to what is worth telling.

A stack has hundreds of frames, of which few say anything: ours, by module and function; the call into the kernel; and
what the processor was in at last, when that is the interpreter's or the C library's. The rest is left out.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

Stack = tuple[str, ...]
"""From the outermost frame to the one that was running."""

OURS: Final = re.compile(r"^CPyDef_(?P<rest>\w+)$")
FRAME: Final = re.compile(r"^\s+[0-9a-f]+ (?P<symbol>.+?) \((?P<place>[^()]*(?:\([^()]*\))?[^()]*)\)$")
SYSCALLS: Final = {
    "ksys_read": "kernel: read",
    "ksys_write": "kernel: write",
    "__sys_sendmsg": "kernel: write",
    "__sys_sendto": "kernel: write",
    "__sys_recvmsg": "kernel: read",
    "__sys_recvfrom": "kernel: read",
    "do_writev": "kernel: write",
    "do_epoll_wait": "kernel: epoll",
    "do_epoll_ctl": "kernel: epoll",
    "__sys_accept4": "kernel: accept",
    "exc_page_fault": "kernel: memory",
    "asm_exc_page_fault": "kernel: memory",
}


def read(script: str) -> Counter[Stack]:
    """What `perf script -F comm,ip,sym,dso` printed, one stack after the other."""
    return Counter(stack for sample in script.split("\n\n") if (stack := _stack(sample.splitlines()[1:])))


def _stack(lines: Iterable[str]) -> Stack:
    """The frames come innermost first, and are told outermost first."""
    frames = [(found["symbol"], found["place"]) for line in lines if (found := FRAME.match(line))]
    frames = [(symbol, place) for symbol, place in frames if place != "inlined"]  # the next frame is where it lies
    told: list[str] = []
    for symbol, _place in reversed(frames):
        name = _name(symbol)
        if name and (not told or told[-1] != name):
            told.append(name)
        if told and told[-1].startswith("kernel: "):
            return tuple(told)
    return (*told, _leaf(*frames[0])) if frames else ()


def _name(symbol: str) -> str | None:
    """What a frame is called, if it is told at all."""
    if symbol in SYSCALLS:
        return SYSCALLS[symbol]
    if found := OURS.match(symbol):
        # mypyc writes `module___Class___method`, and dots within the module's name as `___` too.
        return ".".join(part for part in found["rest"].split("___") if part)
    return None


def _leaf(symbol: str, place: str) -> str:
    """Where the processor was, when that is nobody's function of ours."""
    if "mypyc" in place:
        return "itself"
    if "uvloop" in place:
        return "uvloop"
    if "kernel" in place:
        return "kernel: other"
    if "libc" in place:
        return "memory copied" if "mem" in symbol else "C library"
    if "libpython" in place or "python" in place:
        return "Python: memory" if re.search("alloc|free|dealloc", symbol, re.IGNORECASE) else "Python"
    return "other"


def shares(stacks: Counter[Stack]) -> list[tuple[str, float]]:
    """Who had the processor: the innermost of each stack, the largest share first."""
    last: Counter[str] = Counter()
    for stack, count in stacks.items():
        name = stack[-1]
        last[stack[-2] if name == "itself" and len(stack) > 1 else name] += count
    total = stacks.total()
    return [(name, count / total) for name, count in last.most_common()]


def children(stacks: Counter[Stack]) -> Iterator[tuple[str, Counter[Stack]]]:
    """The outermost frames, in the order of their names, and what each of them called."""
    groups: dict[str, Counter[Stack]] = {}
    for stack, count in stacks.items():
        if stack:
            groups.setdefault(stack[0], Counter())[stack[1:]] += count
    yield from sorted(groups.items())
