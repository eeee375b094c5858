"""Writes the Alembic revision for what was changed in the declared tables.

    python -m tests.support.persist.new_revision "Shards have tombstones"

Read what it wrote: a rename looks like a removal, and a new column that may not be NULL needs a
`server_default` for the rows that are there.
"""

from __future__ import annotations

import re
import sys
import tempfile

from alembic import command
from alembic.config import Config

from slackwater.persist.metastore import connect, create_all
from slackwater.persist.migrations import HISTORY, revision
from slackwater.persist.tables import metadata


def main(message: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        engine = connect(f"sqlite:///{folder}/metastore.sqlite")
        create_all(engine)
        with engine.begin() as conn:
            config = Config(attributes={"connection": conn, "metadata": metadata})
            config.set_main_option("script_location", str(HISTORY.folder))
            slug = re.sub("[^a-z0-9]+", "_", message.lower())
            config.set_main_option("file_template", f"v%%(rev)s_{slug}")
            command.revision(config, message, autogenerate=True, rev_id=revision(HISTORY.head + 1))
        engine.dispose()


if __name__ == "__main__":
    main(sys.argv[1])
