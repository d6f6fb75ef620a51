"""Buffers that live at one time never overlap, and memory is reused."""

from hypothesis import given
from hypothesis import strategies as st

from lamina.runtime import arena
from lamina.runtime.arena import ALIGN, allocate, find_hosts, plan_offsets, thread_arena


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 20), st.integers(0, 8)), max_size=40))
def test_no_overlap(buffers):
    sizes = [b[0] for b in buffers]
    lives = [(first, first + length) for _, first, length in buffers]
    offsets, total = plan_offsets(sizes, lives)
    for i in range(len(buffers)):
        assert offsets[i] % ALIGN == 0 and offsets[i] + sizes[i] <= total
        for j in range(i):
            together = lives[i][0] <= lives[j][1] and lives[j][0] <= lives[i][1]
            apart = offsets[i] + sizes[i] <= offsets[j] or offsets[j] + sizes[j] <= offsets[i]
            assert apart or not together or not sizes[i] or not sizes[j]


HOSTS = st.lists(st.tuples(st.integers(0, 80), st.integers(0, 25)), max_size=4)


@given(st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 20), st.integers(0, 8)), max_size=30), HOSTS)
def test_guests_have_left_when_their_host_needs_its_memory(buffers, hosts):
    sizes = [b[0] for b in buffers]
    lives = [(first, first + length) for _, first, length in buffers]
    hosts = [(ALIGN * lines, until) for lines, until in hosts]
    homes, offsets, total = find_hosts(sizes, lives, hosts, 200)
    assert total <= plan_offsets(sizes, lives)[1]
    for i, home in enumerate(homes):
        room, until = (total, 100) if home < 0 else hosts[home]
        assert offsets[i] % ALIGN == 0 and offsets[i] + sizes[i] <= room and lives[i][1] < until
        assert home < 0 or sizes[i] >= 128  # 200 bytes are four lines, with what is left of the last
        for j in range(i):
            together = homes[j] == home and lives[i][0] <= lives[j][1] and lives[j][0] <= lives[i][1]
            apart = offsets[i] + sizes[i] <= offsets[j] or offsets[j] + sizes[j] <= offsets[i]
            assert apart or not together or not sizes[i] or not sizes[j]


def test_a_chain_needs_two_buffers():
    assert plan_offsets([1000] * 50, [(i, i + 1) for i in range(50)])[1] == 2 * 1024


def test_a_later_larger_buffer_grows_from_the_last_hole():
    assert plan_offsets([64, 64, 256], [(0, 3), (0, 1), (2, 3)]) == ([0, 64, 64], 320)


def test_no_hole_is_left_at_the_peak_where_a_later_buffer_is_larger():
    # in order of birth the third buffer lies above both others, though the first is dead
    assert plan_offsets([128, 256, 320], [(0, 1), (1, 2), (2, 3)]) == ([0, 320, 0], 256 + 320)


def test_block_grows_and_is_aligned():
    _, first = thread_arena(100)
    assert first % ALIGN == 0 and thread_arena(50)[1] == first
    assert thread_arena(1 << 20)[1] % ALIGN == 0


def test_a_request_amid_another_gets_a_block_too(monkeypatch):
    """A finalizer may run while the block grows, when the old one is gone."""
    amid = []

    def interrupted(size):
        if not amid:
            amid.append(None)
            amid[:] = thread_arena(50)
        return allocate(size)

    monkeypatch.setattr(arena, "_arena", arena._Arena())
    thread_arena(100)
    monkeypatch.setattr(arena, "allocate", interrupted)
    thread_arena(1000)
    block, address = amid
    assert 0 <= address - block.ctypes.data <= block.nbytes - 50
