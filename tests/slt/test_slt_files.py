"""Runs every ``.slt`` file of this folder, and checks that every error condition has a case."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.support.applications.fixtures import Workplace
from tests.support.applications.slt import parse, run

from slackwater.repr.errors import conditions

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*.slt"))


@pytest.mark.spark
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_file(path, shared_application, tmp_path):
    place = Workplace(shared_application, f"slt_{path.stem}", tmp_path)
    try:
        run(place, parse(path.read_text()))
    finally:
        shared_application.sql(f"DROP SCHEMA IF EXISTS slackwater.slt_{path.stem} CASCADE")


WITHOUT_CASE = {
    "SLACKWATER_CANCELED": (
        "needs a statement that is cancelled while it runs",
        "clients/test_cancel.py::test_waiting_for_a_frontier_that_is_far_away",
    ),
    "SLACKWATER_CONTENTS_LOST": (
        "needs a metastore that has lost rows",
        "unit/adapter/test_repair.py::test_what_has_lost_its_contents_is_refused_and_the_rest_goes_on",
    ),
    "SLACKWATER_CONCURRENT_CHANGE": (
        "needs two statements at the same moment",
        "unit/adapter/test_staged_tables.py::test_a_table_that_changes_meanwhile_is_not_replaced",
    ),
    "SLACKWATER_INVALID_REQUEST": (
        "needs a client that is no shim of this version",
        "unit/server/test_decoding.py::test_a_field_that_the_request_does_not_have_is_refused",
    ),
    "SLACKWATER_INDEX_MEMORY": (
        "is told in notices: the view goes on by jobs",
        "e2e/test_arrangement_memory.py::test_what_does_not_fit_is_read_until_it_fits",
    ),
    "SLACKWATER_RESULT_TOO_LARGE": (
        "needs an application with a small limit",
        "e2e/test_limited_results.py::test_a_view_names_the_limit_of_results",
    ),
    "SLACKWATER_COORDINATOR_START": (
        "needs an interpreter that does not start",
        "clients/test_shim_process.py::test_a_coordinator_that_cannot_start",
    ),
    "SLACKWATER_COORDINATOR_UNAVAILABLE": (
        "needs a coordinator that is gone",
        "clients/test_shim_process.py::test_a_coordinator_that_nobody_reaches",
    ),
    "SLACKWATER_DEPENDENCY_DROPPED": (
        "needs a DROP while a SUBSCRIBE runs",
        "unit/adapter/test_maintenance.py::test_a_bind_of_a_table_that_is_gone_says_so",
    ),
    "SLACKWATER_ENVIRONMENT_VERSION": (
        "needs a newer environment",
        "unit/persist/test_persist_migrations.py::test_an_older_program_is_refused",
    ),
    "SLACKWATER_PARAMETERS_FILE": (
        "is told in notices: what held before stays",
        "unit/adapter/test_parameters.py::test_a_file_is_read_when_it_has_changed_and_as_a_whole",
    ),
    "SLACKWATER_LATE_CHANGE": (
        "is the status of a source that stops",
        "unit/adapter/test_changefeed_sources.py::test_on_late_fail_stops_the_source",
    ),
    "SLACKWATER_SECRET_NOT_TEXT": (
        "is told to who sends a request, as a refusal, and to the log",
        "e2e/test_webhooks.py::test_a_secret_may_change",
    ),
    "SLACKWATER_FENCED": (
        "needs a second application",
        "clients/test_join_takeover.py::test_a_leader_that_hangs_is_fenced",
    ),
    "SLACKWATER_FUNCTION_FAILED": (
        "it is the cause in SLACKWATER_DATA_ERROR",
        "e2e/test_maintained_by_programs.py::test_what_java_says_of_values_is_an_error_of_theirs",
    ),
    "SLACKWATER_FOREIGN_FILE": (
        "no statement names a file of a write",
        "unit/persist/test_written_files.py::test_other_files_are_refused",
    ),
    "SLACKWATER_INTERNAL": (
        "a defect: no statement may cause it",
        "unit/server/test_request_limits.py::test_a_defect_is_told_without_its_trace",
    ),
    "SLACKWATER_SINK_PROGRESS_LOST": (
        "needs a broker",
        "e2e/test_kafka_sinks.py::test_a_sink_without_its_progress_begins_nothing",
    ),
    "SLACKWATER_LEADER_UNREACHABLE": (
        "needs an application on another host",
        "clients/test_join_takeover.py::test_a_leader_on_another_host_is_not_fenced",
    ),
    "SLACKWATER_LOCATION_NOT_SHARED": (
        "needs executors elsewhere",
        "e2e/test_standalone_cluster.py::test_a_folder_that_executors_do_not_see_is_refused",
    ),
    "SLACKWATER_LOCK_LOST": (
        "needs an application that hangs",
        "clients/test_join_takeover.py::test_a_client_that_hangs_before_its_write_loses_its_lock",
    ),
    "SLACKWATER_LOCK_TIMEOUT": (
        "needs a statement that holds a table for long",
        "clients/test_cancel.py::test_waiting_for_a_table_that_another_statement_reads_and_writes",
    ),
    "SLACKWATER_METASTORE_UNAVAILABLE": (
        "needs a metastore that is gone",
        "e2e/test_faults.py::test_metastore_that_goes_away_or_hangs_and_comes_back",
    ),
    "SLACKWATER_METASTORE_REQUIRED": (
        "needs a location in S3",
        "e2e/test_s3_location.py::test_it_needs_a_metastore_elsewhere",
    ),
    "SLACKWATER_CONNECTOR_MISSING": (
        "needs a library that is not installed",
        "unit/adapter/test_connection_trials.py::test_a_library_that_is_missing",
    ),
    "SLACKWATER_UNKNOWN_TOPIC": (
        "needs a broker",
        "e2e/test_kafka_sources.py::test_a_topic_that_is_not_there",
    ),
    "SLACKWATER_UNKNOWN_SCHEMA": (
        "needs a schema registry",
        "e2e/test_avro_topics.py::test_schemas_that_are_not_there_or_have_no_columns",
    ),
    "SLACKWATER_AVRO_SCHEMA": (
        "needs a broker",
        "e2e/test_avro_topics.py::test_schemas_that_are_not_there_or_have_no_columns",
    ),
    "SLACKWATER_SCHEMA_REFUSED": (
        "needs a schema registry",
        "e2e/test_avro_sinks.py::test_a_registry_that_is_away_or_refuses_stalls_the_sink",
    ),
    "SLACKWATER_SNAPSHOT_TIMEOUT": (
        "needs a broker",
        "chaos/test_kafka_source.py::test_reads_wait_until_what_was_there_at_first_is_read",
    ),
    "SLACKWATER_SOURCE_REPLACED": (
        "is told in mz_source_statuses",
        "e2e/test_kafka_sources.py::test_a_topic_that_was_made_anew_is_another_one",
    ),
    "SLACKWATER_SOURCE_HISTORY_LOST": (
        "is told in mz_source_statuses",
        "e2e/test_kafka_sources.py"
        "::test_messages_that_are_gone_are_told_and_skipped_when_that_is_said",
    ),
    "SLACKWATER_NOTHING_LOST": (
        "needs a broker",
        "e2e/test_kafka_sources.py"
        "::test_messages_that_are_gone_are_told_and_skipped_when_that_is_said",
    ),
    "SLACKWATER_SOURCE_BAD_MESSAGE": (
        "is told in mz_source_statuses",
        "e2e/test_kafka_sources.py::test_what_is_no_row_is_an_error_until_its_key_has_another",
    ),
    "SLACKWATER_UPSERT_MEMORY": (
        "needs more keys than fit into memory",
        "unit/storage/test_keyed_rows.py::test_rows_that_take_too_much_are_refused",
    ),
    "SLACKWATER_SOURCE_TABLE_CHANGED": (
        "is told in the status of a source whose table loses a column",
        "e2e/test_delta_sources.py::"
        "test_a_source_begins_where_it_is_told_and_goes_on_after_resnapshot",
    ),
    "SLACKWATER_SOURCE_TABLE_ERROR": (
        "needs a server of PostgreSQL",
        "e2e/test_postgres_sources.py::test_what_does_not_fit_is_an_error_of_its_table",
    ),
    "SLACKWATER_UNKNOWN_PUBLICATION": (
        "needs a server of PostgreSQL",
        "e2e/test_postgres_sources.py::test_what_is_not_there_is_refused",
    ),
    "SLACKWATER_UNKNOWN_UPSTREAM_TABLE": (
        "needs a server of PostgreSQL",
        "e2e/test_postgres_sources.py::test_what_is_not_there_is_refused",
    ),
    "SLACKWATER_UPSTREAM_SETTING": (
        "needs a server of PostgreSQL",
        "e2e/test_postgres_sources.py::test_what_a_server_does_not_allow_is_refused",
    ),
    "SLACKWATER_UPSTREAM_PERMISSION": (
        "needs a server of PostgreSQL",
        "e2e/test_postgres_sources.py::test_who_may_not_is_refused",
    ),
    "SLACKWATER_NO_SPACE": (
        "needs a full disk",
        "e2e/test_faults.py::test_no_space",
    ),
    "SLACKWATER_PASSWORD_SHOWN": (
        "is about the settings of an application",
        "unit/persist/test_persist_blobs.py::test_a_password_in_the_setting_of_the_metastore_is_refused",
    ),
    "SLACKWATER_PYTHON_UNAVAILABLE": (
        "needs executors whose Python lacks a module",
        "e2e/test_functions_in_views.py::test_a_module_that_executors_lack_is_no_error_of_the_rows",
    ),
    "SLACKWATER_ROWS_NOT_PRESENT": (
        "a defect: no statement may cause it",
        "unit/adapter/test_retractions.py::test_what_is_not_there_cannot_be_deleted",
    ),
    "SLACKWATER_S3_SUPPORT_MISSING": (
        "needs a location in S3",
        "e2e/test_s3_location.py::test_what_is_missing_is_said",
    ),
    "SLACKWATER_SOURCE_BAD_ROW": (
        "is told in mz_source_statuses",
        "unit/storage/test_storage_files.py::test_a_bad_row_stalls_before_its_file_until_it_is_corrected",
    ),
    "SLACKWATER_SOURCE_FILE_CHANGED": (
        "is told in mz_source_statuses",
        "unit/storage/test_storage_files.py::test_files_that_change_or_vanish_are_reported_and_keep_their_rows",
    ),
    "SLACKWATER_SOURCE_FILE_UNREADABLE": (
        "is told in mz_source_statuses",
        "unit/storage/test_storage_files.py::test_an_unreadable_file_stalls",
    ),
    "SLACKWATER_STATEMENT_INTERRUPTED": (
        "needs a coordinator that ends meanwhile",
        "clients/test_shim_process.py::test_a_statement_whose_coordinator_dies_is_not_repeated",
    ),
    "SLACKWATER_STATEMENT_TIMEOUT": (
        "needs a statement that waits",
        "clients/test_cancel.py::test_a_spark_job_of_the_coordinators",
    ),
    "SLACKWATER_STORAGE_UNAVAILABLE": (
        "needs a location that cannot be written",
        "unit/persist/test_persist_blobs.py::test_a_store_that_does_not_answer_is_an_error_without_secrets",
    ),
    "SLACKWATER_STORAGE_UNREADABLE": (
        "needs a store that does not answer",
        "unit/persist/test_persist_blobs.py::test_a_store_that_does_not_answer_is_an_error_without_secrets",
    ),
    "SLACKWATER_TOO_LARGE": (
        "needs more rows than fit into memory",
        "unit/server/test_request_limits.py::test_a_request_that_is_too_large_is_refused",
    ),
    "SLACKWATER_TOO_MANY_REQUESTS": (
        "needs more statements than threads",
        "unit/server/test_server.py::test_too_many_statements_are_refused_and_what_belongs_to_others_is_not",
    ),
    "SLACKWATER_TRANSACTION_LOST": (
        "needs a coordinator that ends inside a block",
        "e2e/test_blocks.py::test_a_block_ends_with_the_coordinator",
    ),
    "SLACKWATER_NULL_ASSERTED": (
        "it is the cause in SLACKWATER_DATA_ERROR",
        "e2e/test_maintained_by_programs.py"
        "::test_a_null_in_an_asserted_column_is_an_error_until_it_is_gone",
    ),
    "SLACKWATER_UNBOUND_RELATION": (
        "a defect: no statement may cause it",
        "clients/test_shim_data.py::test_an_unbound_relation_is_refused",
    ),
    "SLACKWATER_WAIT_TIMEOUT": (
        "needs a view that lags",
        "unit/adapter/test_sinks.py::test_a_sink_that_cannot_write_is_not_redirected",
    ),
}
"""Conditions that no file can cause: why, and the test that asserts them."""


def test_every_condition_has_a_case_or_a_reason():
    cases = set()
    for path in FILES:
        for record in parse(path.read_text()):
            if record.head[:2] == ["statement", "error"]:
                cases.add(record.head[2])
    ours = {name for name in cases if name.startswith("SLACKWATER_")}
    assert ours <= set(conditions())
    assert set(WITHOUT_CASE) <= set(conditions())
    assert sorted(set(conditions()) - ours - set(WITHOUT_CASE)) == []
    assert sorted(ours & set(WITHOUT_CASE)) == []


@pytest.mark.parametrize("condition", WITHOUT_CASE)
def test_the_test_that_is_named_asserts_the_condition(condition):
    _, named = WITHOUT_CASE[condition]
    path, _, name = named.partition("::")
    text = (FOLDER.parent / path).read_text()
    (found,) = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    assert condition in ast.get_source_segment(text, found)


# A view that fails for a row has the state of that row's own error.
STATE_OF_THE_CAUSE = ("SLACKWATER_DATA_ERROR",)


def test_states_of_cases_are_those_of_the_catalogue():
    for path in FILES:
        for record in parse(path.read_text()):
            if record.head[:2] != ["statement", "error"] or record.head[2] not in conditions():
                continue
            condition, state = record.head[2:4]
            wanted = conditions()[condition]["sqlState"]
            if condition in STATE_OF_THE_CAUSE:
                assert state[:2] == wanted[:2]
            else:
                assert state == wanted, (path.name, record.line)
