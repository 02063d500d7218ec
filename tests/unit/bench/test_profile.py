"""Call stacks and flame graphs: what perf printed, brought down to what is worth telling."""

from collections import Counter
from xml.etree import ElementTree

import pytest

from bench import flame, profile, stacks
from bench.cases import CASES

LIBPYTHON = "/usr/lib/libpython3.11.so.1.0"
SCRIPT = f"""\
python
\tffffffff81a8b84d tcp_sendmsg ([kernel.kallsyms])
\tffffffff816b98aa ksys_write ([kernel.kallsyms])
\t           f838f __GI___libc_write (/usr/lib/libc.so.6)
\t           80e5f CPyDef_link___Link___write (/5d__mypyc.cpython-311-x86_64-linux-gnu.so)
\t           ea679 CPyDef_loop_driver___LoopDriver___run (/5d__mypyc.cpython-311-x86_64-linux-gnu.so)
\t          12a2f6 uv_run (/home/x/uvloop/loop.cpython-311-x86_64-linux-gnu.so)

python
\t           f8000 _PyObject_Malloc (inlined)
\t           f8000 PyBytes_FromStringAndSize ({LIBPYTHON})
\t           80e5f CPyDef_packet_handler___PacketHandler___publish_in_place (/5d__mypyc.cpython-311-x86_64-linux-gnu.so)

python
\t           80e5f CPyDef_packet_handler___PacketHandler___publish_in_place (/5d__mypyc.cpython-311-x86_64-linux-gnu.so)
"""
TOLD = {
    ("loop_driver.LoopDriver.run", "link.Link.write", "kernel: write"): 1,
    ("packet_handler.PacketHandler.publish_in_place", "Python"): 1,
    ("packet_handler.PacketHandler.publish_in_place", "itself"): 1,
}


def test_a_stack_is_our_functions_and_the_call_into_the_kernel() -> None:
    assert stacks.read(SCRIPT) == TOLD


def test_an_object_without_a_stack_gives_nothing() -> None:
    assert stacks.read("python\n\n\n") == Counter()


@pytest.mark.parametrize(
    ("symbol", "place", "told"),
    [
        ("__memmove_avx512", "/usr/lib/libc.so.6", "memory copied"),
        ("__strlen", "/usr/lib/libc.so.6", "C library"),
        ("_PyObject_Free", LIBPYTHON, "Python: memory"),
        ("_PyEval_EvalFrameDefault", LIBPYTHON, "Python"),
        ("uv_run", "/x/uvloop/loop.so", "uvloop"),
        ("do_idle", "[kernel.kallsyms]", "kernel: other"),
        ("anything", "/x/y.so", "other"),
    ],
)
def test_the_last_frame_says_whose_the_time_was(symbol: str, place: str, told: str) -> None:
    assert stacks.read(f"python\n\t  f8000 {symbol} ({place})\n") == {(told,): 1}


def test_shares_are_of_the_innermost_and_add_up() -> None:
    shares = stacks.shares(Counter(TOLD))
    assert dict(shares) == pytest.approx(
        {"kernel: write": 1 / 3, "Python": 1 / 3, "packet_handler.PacketHandler.publish_in_place": 1 / 3}
    )


def test_a_table_groups_the_shares_and_names_our_dearest_functions() -> None:
    text = profile.table({CASES["pingpong"]: Counter(TOLD)})
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    assert rows[2:] == [
        ["kernel: write", "33 %"],
        ["mqttlite itself", "33 %"],
        ["Python and its allocator", "33 %"],
        ["of mqttlite most in", "`packet_handler.PacketHandler.publish_in_place` 33 %"],
    ]


def test_a_box_is_as_wide_as_its_share_and_lies_on_its_caller() -> None:
    root = ElementTree.fromstring(flame.svg(Counter(TOLD), "a & b"))
    space = "{http://www.w3.org/2000/svg}"
    boxes = {}
    for group in root.iter(f"{space}g"):
        title, box = group.find(f"{space}title"), group.find(f"{space}rect")
        assert title is not None
        assert title.text is not None
        assert box is not None
        boxes[title.text] = (float(box.attrib["x"]), float(box.attrib["width"]), float(box.attrib["y"]))
    assert boxes["packet_handler.PacketHandler.publish_in_place 66.7 %"] == (320, 640, 2 * flame.LINE)
    assert boxes["Python 33.3 %"] == (320, 320, flame.LINE)
    assert boxes["kernel: write 33.3 %"] == (0, 320, 0)


def test_bars_too_narrow_to_see_are_left_out() -> None:
    text = flame.svg(Counter({("wide",): 1_000, ("narrow",): 1}), "")
    assert "wide" in text
    assert "narrow" not in text
