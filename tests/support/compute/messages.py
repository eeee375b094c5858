"""Random commands and responses of the compute protocol."""

from __future__ import annotations

from hypothesis import strategies as st

from slackwater.compute.controller import protocol as pr
from slackwater.compute.controller.descriptions import (
    CopyToExport,
    DataflowDescription,
    IndexExport,
    MaterializedViewExport,
    ObjectToBuild,
    SourceImport,
    SubscribeExport,
)
from slackwater.controller.protocol import (
    AllowCompaction,
    Hello,
    InitializationComplete,
    UpdateConfiguration,
)
from slackwater.repr.frontier import EMPTY_FRONTIER, Frontier
from slackwater.repr.refresh import RefreshEvery, RefreshSchedule

texts = st.sampled_from(["x", "y", "ö "])
numbers = st.integers(0, 9)
frontiers = numbers.map(Frontier) | st.just(EMPTY_FRONTIER)
dataflow_ids = st.sampled_from(["u1", "u2", "u3", "t4"])
export_ids = st.sampled_from(["u1", "u2", "u3", "t4", "u11", "u12"])
log_ids = st.just("si1")
parameters = st.dictionaries(texts, texts, max_size=2).map(lambda d: tuple(sorted(d.items())))
sources = st.builds(SourceImport, st.just("u8"), texts, frontiers)
schedules = st.builds(
    RefreshSchedule,
    st.lists(st.builds(RefreshEvery, st.integers(1, 9), numbers), max_size=2).map(tuple),
    st.lists(numbers, min_size=1, max_size=2).map(tuple),
)


def exports(global_id):
    """One export, or an index with a second export."""
    index = st.builds(IndexExport, st.just(global_id), texts, st.tuples(texts))
    sink = st.one_of(
        st.builds(MaterializedViewExport, st.just(global_id), texts, st.just("u9")),
        st.builds(SubscribeExport, st.just(global_id), texts),
        st.builds(CopyToExport, st.just(global_id), texts, texts),
    )
    second = st.builds(IndexExport, st.just(f"u1{global_id[1]}"), texts, st.just(()))
    return st.one_of(
        index.map(lambda i: {"index_exports": (i,)}),
        sink.map(lambda s: {"sink_exports": (s,)}),
        st.tuples(index, second).map(lambda both: {"index_exports": both}),
    )


@st.composite
def dataflows(draw):
    global_id = draw(dataflow_ids)
    imports = st.sampled_from([i for i in ("u1", "u2", "u3") if i < global_id] or ["si1"])
    return DataflowDescription(
        name=draw(texts),
        objects_to_build=(ObjectToBuild("t9", draw(texts)),),
        source_imports=tuple(draw(st.lists(sources, max_size=1))),
        index_imports=tuple(draw(st.lists(imports, max_size=1))),
        as_of=Frontier(draw(numbers)),
        until=draw(st.sampled_from([EMPTY_FRONTIER, Frontier(9)])),
        initial_storage_as_of=draw(st.none() | frontiers),
        refresh_schedule=draw(st.none() | schedules),
        settings=draw(parameters),
        takes_over=draw(st.none() | st.just("u7")),
        **draw(exports(global_id)),
    )


limits = st.builds(pr.PeekLimits, numbers, numbers)
peeks = st.builds(
    pr.Peek,
    texts,
    export_ids,
    numbers,
    st.none() | st.binary(max_size=5),
    limits,
    st.none() | st.builds(pr.Stash, texts, limits),
)


any_instance = st.builds(pr.CreateInstance, parameters, st.just(("si1",)))


def commands(instances=any_instance):
    return st.one_of(
        st.builds(Hello, numbers),
        instances,
        st.builds(UpdateConfiguration, parameters),
        st.just(InitializationComplete()),
        st.builds(pr.AllowWrites, export_ids),
        st.builds(pr.CreateDataflow, dataflows()),
        st.builds(pr.CreateDataflow, dataflows()),
        st.builds(pr.Schedule, export_ids),
        st.builds(AllowCompaction, export_ids | log_ids, frontiers),
        st.builds(AllowCompaction, export_ids | log_ids, frontiers),
        st.builds(pr.OutputAdvanced, export_ids, frontiers),
        peeks,
        st.builds(pr.CancelPeek, texts),
    )


problems = st.builds(pr.Problem, texts, texts, texts, numbers)
answers = st.one_of(
    st.builds(pr.PeekRows, st.binary(max_size=5)),
    st.builds(pr.PeekStashed, texts, numbers, numbers, numbers, texts),
    st.builds(pr.PeekFailed, texts, st.none() | problems),
    st.just(pr.PeekCanceled()),
)
copies = st.one_of(
    st.builds(pr.CopyToRows, numbers),
    st.builds(pr.CopyToFailed, texts),
    st.just(pr.CopyToDropped()),
)
updates = st.builds(pr.SubscribeUpdate, numbers, st.binary(max_size=3))
responses = st.one_of(
    st.builds(
        pr.FrontierReport,
        export_ids,
        st.none() | frontiers,
        st.none() | frontiers,
        st.none() | frontiers,
    ),
    st.builds(pr.PeekAnswered, texts, answers),
    st.builds(
        pr.SubscribeBatch,
        export_ids,
        frontiers,
        frontiers,
        st.lists(updates, max_size=3).map(tuple),
        st.none() | texts,
    ),
    st.builds(pr.SubscribeDropped, export_ids, frontiers),
    st.builds(pr.CopyToAnswered, export_ids, copies),
    st.builds(
        pr.Computed, export_ids, frontiers, frontiers, st.binary(max_size=5), st.binary(max_size=5)
    ),
    st.builds(
        pr.DataflowStatus, export_ids, st.none() | problems, st.booleans(), st.none() | problems
    ),
    st.builds(pr.IndexOpened, export_ids, st.none() | texts),
    st.builds(pr.Heartbeat, numbers),
)
