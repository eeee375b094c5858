"""How many histories each property is tried with.

Without EXAMPLES in the environment each test has its usual number, which a run of all tests can
afford; HISTORIES=half, as `make test` has it, is the first half of these. EXAMPLES=n asks for n
histories in all, new ones: they are divided by weight, and a test that gets many is run several
times, so that one process need not remember all of them and several processes can share them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import settings

MOST_AT_ONCE = 1_000
HALF = "half"
TRIED = "histories"
"""The property of a test's report that says how many were tried."""


@dataclass(frozen=True, slots=True)
class Share:
    """What a test gets: its usual number, and its weight among all when n are asked for.

    `forms` is how often pytest runs the test anyway, once for each of its parameters.
    """

    usual: int
    weight: int
    forms: int = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """A test is run `runs` times (each of its forms), with `size` histories each time."""

    runs: int
    size: int


# By what a history costs: hundreds of them a second, tens, a few, or seconds for one.
SHARES = {
    "test_a_statement_ends_once_under_any_leaders": Share(100, 4_000),
    "test_a_read_is_of_an_index_when_all_of_it_was": Share(60, 2_000),
    "test_a_wait_has_what_moved_its_uppers_and_nothing_else": Share(100, 4_000),
    "test_no_secret_is_in_any_column": Share(150, 4_000),
    "test_any_text_is_shown_somehow": Share(100, 2_000),
    "test_each_minute_has_the_worst_lags_under_any_leaders": Share(100, 4_000),
    "test_of_each_dataflow_the_last_is_known_under_any_leaders": Share(60, 2_000),
    "test_i01_i09_to_i17_i21_to_i25_i28_i33_i34_i52_frontiers_are_what_the_formulas_say": Share(
        60, 25_000
    ),
    "test_i01_i09_to_i16_i37_i40_to_i42_i44_to_i48_replicas_come_and_go": Share(60, 12_000),
    "test_i07_of_appends_that_overtake_each_other_one_meets_its_expectation": Share(40, 1_000),
    "test_i26_i27_a_shard_belongs_somewhere_and_goes_when_nobody_needs_it": Share(25, 800),
    "test_i18_i26_i27_i33_a_crash_at_any_step_leaves_every_shard_in_one_state": Share(60, 12_000),
    "test_i47_frontiers_never_regress_and_nothing_follows_the_empty_one": Share(200, 3_000),
    "test_i37_the_reduced_history_leads_to_the_same_state": Share(200, 4_000),
    "test_i37_what_comes_later_finds_the_same_state": Share(200, 4_000),
    "test_i38_reducing_is_idempotent_and_the_history_stays_short": Share(200, 4_000),
    "test_i39_a_running_replica_ends_like_a_fresh_one": Share(200, 4_000),
    "test_i37_the_reduced_history_of_compute_leads_to_the_same_state": Share(150, 4_000),
    "test_i37_what_compute_hears_later_finds_the_same_state": Share(150, 4_000),
    "test_i38_reducing_for_compute_is_idempotent_and_the_history_stays_short": Share(150, 4_000),
    "test_a_reduced_history_has_an_order_that_can_be_carried_out": Share(100, 2_000),
    "test_i39_a_running_compute_replica_ends_like_a_fresh_one": Share(200, 4_000),
    "test_i39_a_replica_that_is_told_the_same_again_stops_no_view_and_no_index": Share(100, 2_000),
    "test_i43_bounds_agree_with_those_of_the_inputs_after_each_step": Share(150, 4_000),
    "test_i43_an_as_of_is_readable_if_that_is_possible": Share(150, 4_000),
    "test_i44_no_time_of_an_output_is_skipped": Share(150, 4_000),
    "test_as_ofs_do_not_depend_on_the_order_of_dataflows": Share(100, 2_000),
    "test_indexes_begin_as_late_as_they_may": Share(100, 2_000),
    "test_a_command_is_the_same_behind_its_encoding": Share(200, 4_000),
    "test_a_response_is_the_same_behind_its_encoding": Share(200, 4_000),
    "test_a_message_with_more_less_or_other_fields_is_refused": Share(150, 3_000),
    "test_i49_the_remap_is_a_rising_antichain_with_multiplicity_one": Share(100, 3_000),
    "test_i50_a_message_gets_the_same_time_whoever_asks_and_when": Share(100, 3_000),
    "test_i51_resuming_brings_exactly_the_missing_updates": Share(100, 3_000),
    "test_i53_reclocking_and_compacting_commute": Share(100, 3_000),
    "test_the_frontier_in_the_source_follows_the_frontier_in_time": Share(100, 1_000),
    "test_frontiers_of_partitions_that_are_added_compare_by_what_they_allow": Share(100, 1_000),
    "test_i54_upsert_is_the_last_writer_at_each_time": Share(100, 3_000),
    "test_i54_in_pieces_is_the_same_as_at_once": Share(100, 3_000),
    "test_i54_state_is_restored_from_the_output_after_a_restart": Share(100, 3_000),
    "test_none_keeps_every_message": Share(100, 500),
    "test_i55_times_of_reads_and_writes_are_linear_over_clocks_and_restarts": Share(200, 3_000),
    "test_both_forms_agree_and_minimizing_changes_nothing": Share(100, 2_000),
    "test_the_choice_is_readable_and_recent_enough": Share(100, 2_000),
    "test_the_neighbours_of_a_time_are_those_of_the_list": Share(200, 1_000),
    "test_the_upper_never_goes_back_and_no_refresh_is_left_out": Share(200, 1_000),
    "test_the_end_of_time_is_no_refresh": Share(50, 100),
    "test_batches_add_up_to_the_relation": Share(200, 2_000),
    "test_upsert_against_a_model": Share(200, 2_000),
    "test_the_index_finds_what_a_scan_finds": Share(300, 2_000),
    "test_consolidation_is_the_sum_by_value": Share(150, 1_000),
    "test_i54_contents_are_those_of_the_messages_before_the_frontier": Share(100, 500),
    "test_key_value_cut_and_resumed_equals_uninterrupted": Share(100, 500),
    "test_the_snapshot_comes_at_one_time_if_it_is_transactional": Share(100, 200),
    "test_a_topic_is_what_its_messages_before_the_frontier_are": Share(150, 3_000),
    "test_what_a_sink_writes_in_avro_a_source_reads": Share(100, 3_000),
    "test_what_a_sink_writes_in_protobuf_a_source_reads": Share(60, 1_000),
    "test_messages_are_what_their_json_says": Share(60, 2_000),
    "test_any_bytes_are_a_row_or_have_a_reason": Share(60, 2_000),
    "test_a_topic_of_debezium_is_the_table_that_its_changes_make": Share(150, 3_000),
    "test_tables_are_what_transactions_before_the_frontier_made_of_them": Share(150, 3_000),
    "test_changes_that_are_read_together_are_what_each_of_them_says": Share(200, 2_000),
    "test_a_message_that_is_damaged_is_refused_or_says_what_it_says_by_itself": Share(200, 2_000),
    "test_each_update_exactly_once_whatever_crashes": Share(120, 1_000),
    "test_tables_are_what_the_messages_before_the_frontier_are": Share(150, 3_000),
    "test_leaders_that_hang_inside_each_other_s_writes": Share(60, 500),
    "test_each_update_is_committed_once_whatever_fails": Share(120, 4_000),
    "test_a_leader_that_hangs_writes_nothing_beside_the_next_one": Share(80, 2_000),
    "test_the_table_has_each_change_once_whatever_fails": Share(80, 4_000),
    "test_a_source_has_what_its_table_has_in_one_version": Share(80, 3_000),
    "test_a_source_has_what_a_delta_table_has_in_one_version": Share(12, 200),
    "test_a_delta_table_has_each_change_once": Share(15, 200),
    "test_a_delta_table_in_s3_has_each_change_once": Share(3, 40),
    "test_changes_lead_from_each_iceberg_snapshot_to_the_next": Share(10, 40),
    "test_an_iceberg_table_has_each_change_once": Share(12, 200),
    "test_a_hung_leader_commits_nothing_beside_the_next_one": Share(40, 2_000),
    "test_a_commit_of_the_leader_before_comes_late": Share(40, 2_000),
    "test_cut_and_resumed_equals_uninterrupted": Share(80, 400),
    "test_every_transaction_is_there_once_and_as_a_whole": Share(100, 2_000),
    "test_a_table_that_is_added_later_has_what_was_sent_before": Share(100, 2_000),
    "test_a_table_of_a_feed_comes_and_goes_while_it_runs": Share(100, 2_000),
    "test_whatever_a_feed_sends_is_refused_or_lands_and_is_a_row_or_a_dead_letter": Share(
        300, 1_000
    ),
    "test_auction_references_are_whole_after_every_step": Share(50, 200),
    "test_a_generated_table_that_comes_later_has_what_one_from_the_begin_has": Share(80, 400),
    "test_counter_against_its_definition": Share(50, 200),
    "test_a_clock_shows_one_row": Share(30, 100),
    "test_references_are_whole_and_keys_unique_after_every_tick": Share(20, 80),
    "test_a_tick_replaces_one_order_with_its_lineitems": Share(20, 80),
    "test_i01_to_i08_i17_to_i20_i24_to_i36_shards_with_a_metastore_in_memory": Share(30, 2_000),
    "test_i01_to_i08_i17_to_i20_i24_to_i36_shards_with_a_metastore_in_a_file": Share(10, 500),
    "test_i01_to_i08_i17_to_i20_i24_to_i36_shards_with_postgresql": Share(3, 150),
    "test_reads_at_every_time_agree_with_the_history": Share(25, 200, forms=2),
    "test_views_equal_a_recomputation_at_every_time": Share(6, 200),
    "test_rows_are_there_while_they_are_valid_at_every_time": Share(6, 200),
    "test_views_are_their_queries_at_every_time": Share(1, 5),
    "test_an_index_finds_what_a_scan_finds": Share(3, 60),
    "test_a_join_by_an_index_finds_what_a_join_of_a_scan_finds": Share(8, 60),
    "test_changes_of_rows_are_those_of_the_model": Share(15, 100),
    "test_a_replica_goes_on_whatever_threads_and_others_do": Share(150, 3_000),
    "test_bounds_in_sqlite_are_what_the_rows_say": Share(150, 6_000),
    "test_bounds_in_postgresql_are_what_the_rows_say": Share(80, 1_000),
    "test_aligned_groups_have_the_bounds_of_the_original": Share(150, 2_000),
    "test_bounds_of_unaligned_groups_never_go_back": Share(150, 2_000),
    "test_what_is_committed_stays_in_memory": Share(150, 2_000),
    "test_what_is_committed_stays_in_sqlite": Share(30, 500),
    "test_what_is_committed_stays_in_postgresql": Share(20, 150),
    "test_two_processes_agree_in_sqlite": Share(20, 150),
    "test_two_processes_agree_in_postgresql": Share(12, 100),
}

THE_REST = "test_i55_times_of_reads_and_writes_are_linear_over_clocks_and_restarts"
"""The test that gets what the division of the others leaves."""


def asked_for() -> int | None:
    """The number of histories of the whole run that somebody asked for."""
    text = os.environ.get("EXAMPLES", "")
    return int(text) if text else None


def usual(shares: Mapping[str, Share], *, half: bool) -> dict[str, Plan]:
    """The plan of each test when nobody asked for a number."""
    of = 2 if half else 1
    return {name: Plan(1, -(-share.usual // of)) for name, share in shares.items()}


def divided(shares: Mapping[str, Share], rest: str, wanted: int) -> dict[str, Plan]:
    """The plan of each test; the sum of all histories is `wanted`.

    ValueError when `wanted` is not enough for one history of each test.
    """
    weights = sum(share.weight * share.forms for share in shares.values())
    plans = {}
    for name, share in shares.items():
        count = max(1, wanted * share.weight // weights)
        runs = -(-count // MOST_AT_ONCE)
        plans[name] = Plan(runs, count // runs)
    others = total(shares, {name: plan for name, plan in plans.items() if name != rest})
    if others >= wanted:
        raise ValueError(f"EXAMPLES={wanted} is less than one for each property ({others + 1})")
    plans[rest] = Plan(1, wanted - others)
    return plans


def total(shares: Mapping[str, Share], plans: Mapping[str, Plan]) -> int:
    """How many histories the plans have in all."""
    return sum(plan.runs * plan.size * shares[name].forms for name, plan in plans.items())


_WANTED = asked_for()
PLANS = (
    usual(SHARES, half=os.environ.get("HISTORIES") == HALF)
    if _WANTED is None
    else divided(SHARES, THE_REST, _WANTED)
)


def settings_of(name: str, **options: Any) -> settings:
    """Hypothesis' settings for one run of the test."""
    return settings(max_examples=PLANS[name].size, deadline=None, print_blob=True, **options)


def histories(**options: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a test with ``@given`` its share. The options are those of Hypothesis' settings."""
    return lambda test: settings_of(test.__name__, **options)(test)
