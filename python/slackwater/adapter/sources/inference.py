"""The columns of a FILES source that are not declared: Spark infers them from the files."""

from __future__ import annotations

from collections.abc import Mapping

from slackwater.compute.engine import Engine, InferredFiles
from slackwater.repr.errors import user_error
from slackwater.repr.relation import RelationDesc
from slackwater.storage.file_formats import Format
from slackwater.storage.files_source import FilesConfig
from slackwater.storage.sample import sample, verify


def inferred_columns(engine: Engine, config: FilesConfig, object_name: str) -> RelationDesc:
    """The columns that `spark.read` gives to the files found now, with inference of types.

    The source can read these files under them. Raises SLACKWATER_SOURCE_FILES_NOT_FOUND,
    SLACKWATER_SOURCE_FILE_UNREADABLE, SLACKWATER_UNSUPPORTED_TYPE, with ON ERROR STALL
    SLACKWATER_SOURCE_BAD_ROW, and Spark's errors of files without columns.
    """
    groups = sample(config)
    desc = None
    if groups:
        paths = tuple(tuple(file.path for file in group) for group in groups)
        desc = engine.infer(InferredFiles(config.format.kind, reader_options(config.format), paths))
    if desc is None or not desc.columns:
        raise user_error(
            "SLACKWATER_SOURCE_FILES_NOT_FOUND", objectName=object_name, path=config.path
        )
    verify(tuple(file for group in groups for file in group), config, desc)
    return desc


def reader_options(form: Format) -> Mapping[str, str]:
    """The options by which Spark's reader takes the files as the source does.

    Quotes inside quotes are doubled, and quoted texts may have several lines.
    """
    match form.kind:
        case "CSV":
            return {
                "header": str(form.header).lower(),
                "sep": form.delimiter,
                "nullValue": form.null_text,
                "inferSchema": "true",
                "multiLine": "true",
                "escape": '"',
            }
        case "JSON":
            return {"mode": "DROPMALFORMED"}
        case "PARQUET":
            return {}
