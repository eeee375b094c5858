"""The as-ofs of all dataflows at a start."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories
from tests.support.compute.controller_room import index, view

from slackwater.compute.controller.as_of import Selection
from slackwater.controller.frontiers import CollectionFrontiers
from slackwater.repr.frontier import EMPTY_FRONTIER, Frontier, Timestamp
from slackwater.repr.read_policy import LagWriteFrontier

NOW = Timestamp(25)
SOURCES = ("u1", "u2", "u3")


@st.composite
def stored_collections(draw):
    found = {}
    for each in SOURCES:
        since, length = draw(st.integers(0, 20)), draw(st.integers(-3, 20))
        upper = draw(st.sampled_from([Frontier(max(0, since + length)), EMPTY_FRONTIER]))
        found[each] = CollectionFrontiers(Frontier(since), upper)
    return found


@st.composite
def starts(draw):
    """Dataflows over stored collections and over each other, in any order."""
    stored = draw(stored_collections())
    flows, indexes, policies = [], [], {}
    for number in range(draw(st.integers(1, 7))):
        name = f"u{50 + number}"
        sources = draw(st.lists(st.sampled_from(SOURCES), max_size=2, unique=True))
        imports = draw(
            st.lists(st.sampled_from(indexes or SOURCES), max_size=2 * bool(indexes), unique=True)
        )
        as_of = draw(st.sampled_from([None, None, None, Frontier(draw(st.integers(0, 25)))]))
        if draw(st.booleans()):
            flows.append(index(name, sources, imports, as_of=as_of))
            indexes.append(name)
            if draw(st.booleans()):
                policies[name] = LagWriteFrontier(draw(st.integers(0, 9)))
        else:
            target = f"u{70 + number}"
            since = draw(st.integers(0, 20))
            upper = draw(st.sampled_from([0, since, since + 1, since + 7, None]))
            stored[target] = CollectionFrontiers(
                Frontier(since), EMPTY_FRONTIER if upper is None else Frontier(upper)
            )
            flows.append(view(name, target, sources, imports, as_of=as_of))
    return draw(st.permutations(flows)), stored, policies


def by_export(selection):
    return {i: c for c in selection.candidates.values() for i in c.dataflow.export_ids}


@histories()
@given(starts())
def test_i43_bounds_agree_with_those_of_the_inputs_after_each_step(start):
    flows, stored, policies = start
    selection = Selection(flows, stored, policies, NOW)
    for _ in selection.steps():
        known = by_export(selection)
        for candidate in selection.candidates.values():
            own = candidate.bounds
            assert own.lower <= own.upper
            for each in candidate.dataflow.index_imports:
                source = known[each].bounds
                if not own.is_sealed and not source.is_sealed:
                    assert source.lower <= own.lower
                    assert source.upper <= own.upper


def satisfiable(flows, stored):
    """Whether each dataflow has a time that all its demands allow, computed from the outside.

    At or after the sinces of all that it reads, directly or not, and before the upper of all
    outputs that read it, directly or not.
    """
    known = {i: each for each in flows for i in each.export_ids}
    complete = {i for i, each in known.items() if is_complete(each, stored)}
    lower = {i: earliest(i, known, stored) for i in known}
    upper = dict.fromkeys(known, EMPTY_FRONTIER)
    for name, each in known.items():
        if name in complete:
            continue
        limit = own_limit(each, stored) if each.as_of is None else each.as_of
        for i in {name} | above(name, known):
            upper[i] = min(upper[i], limit)
    fixed = {i: each.as_of for i, each in known.items() if each.as_of is not None}
    return all(lower[i] <= upper[i] for i in known if i not in complete) and not fixed


def above(name, known):
    """All that the dataflow reads, directly or not."""
    found = set()
    for each in known[name].index_imports:
        found |= {each} | above(each, known)
    return found


def earliest(name, known, stored):
    sources = {s for i in {name} | above(name, known) for s in known[i].source_ids}
    return max((stored[s].since for s in sources), default=Frontier(0))


def own_limit(dataflow, stored):
    limits = [EMPTY_FRONTIER]
    for each in dataflow.target_ids:
        frontiers = stored[each]
        readable = frontiers.since < frontiers.upper
        limits.append(Frontier(frontiers.upper.value - 1) if readable else frontiers.since)
    return min(limits)


def is_complete(dataflow, stored):
    return bool(dataflow.target_ids) and all(stored[t].upper.is_empty for t in dataflow.target_ids)


@histories()
@given(starts())
def test_i43_an_as_of_is_readable_if_that_is_possible(start):
    flows, stored, policies = start
    selection = Selection(flows, stored, policies, NOW)
    chosen = dict(zip((each.export_ids[0] for each in flows), selection.as_ofs(), strict=True))
    known = {i: each for each in flows for i in each.export_ids}
    if satisfiable(flows, stored):
        assert selection.failed == []
        for name, each in known.items():
            for source in each.source_ids:
                assert stored[source].since <= chosen[name]
            for other in each.index_imports:
                assert chosen[other] <= chosen[name]
    for each in flows:
        if each.as_of is not None and not is_complete(each, stored):
            assert chosen[each.export_ids[0]] == each.as_of


@histories()
@given(starts())
def test_i44_no_time_of_an_output_is_skipped(start):
    """A view begins before the upper of what is stored of it, or where nothing was read yet."""
    flows, stored, policies = start
    selection = Selection(flows, stored, policies, NOW)
    as_ofs = selection.as_ofs()
    if not satisfiable(flows, stored):
        return
    for each, as_of in zip(flows, as_ofs, strict=True):
        for target in each.target_ids:
            frontiers = stored[target]
            if frontiers.upper.is_empty:
                assert as_of.is_empty
            elif frontiers.since < frontiers.upper:
                assert as_of < frontiers.upper
            else:
                assert as_of <= frontiers.since


@histories()
@given(starts(), st.randoms(use_true_random=False))
def test_as_ofs_do_not_depend_on_the_order_of_dataflows(start, random):
    flows, stored, policies = start
    if not satisfiable(flows, stored):
        return
    found = dict(zip(flows, Selection(flows, stored, policies, NOW).as_ofs(), strict=True))
    other = list(flows)
    random.shuffle(other)
    again = Selection(other, stored, policies, NOW)
    assert dict(zip(other, again.as_ofs(), strict=True)) == found
    order = [other[n].export_ids[0] for n in again.by_dependency()]
    complete = {i for each in flows if is_complete(each, stored) for i in each.export_ids}
    for each in flows:
        for source in each.index_imports:
            name = each.export_ids[0]
            assert name in complete or order.index(source) < order.index(name)


@histories()
@given(starts())
def test_indexes_begin_as_late_as_they_may(start):
    """Not in the future, with nothing of history that nobody reads."""
    flows, stored, policies = start
    as_ofs = Selection(flows, stored, policies, NOW).as_ofs()
    if not satisfiable(flows, stored):
        return
    read = {i for each in flows for i in each.index_imports}
    for each, as_of in zip(flows, as_ofs, strict=True):
        name = each.export_ids[0]
        if not each.index_exports or name in read or each.index_imports:
            continue
        uppers = [stored[s].upper for s in each.source_ids]
        upper = min(uppers, default=EMPTY_FRONTIER)
        wanted = NOW if upper.is_empty else min(NOW, max(0, upper.value - 1))
        if name in policies:
            wanted = min(
                wanted, max(0, (NOW if upper.is_empty else upper.value) - policies[name].lag_ms)
            )
        lower = max((stored[s].since.value for s in each.source_ids), default=0)
        assert as_of.value == max(wanted, lower)
