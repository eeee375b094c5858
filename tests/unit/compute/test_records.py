"""Records of what replicas do, as people read them."""

import pytest

from slackwater.compute.records import HydrationProgress
from slackwater.repr.ids import user_id


@pytest.mark.parametrize(
    ("rows_read", "rows", "shown"),
    [
        (0, 0, "0 %: 0 of 0 rows"),
        (0, 10, "0 %: 0 of 10 rows"),
        (2_467_000, 6_000_000, "41 %: 2,467,000 of 6,000,000 rows"),
        (10, 10, "99 %: 10 of 10 rows"),
        (25, 10, "99 %: 25 of 10 rows"),
    ],
)
def test_progress_is_no_more_than_99_percent_while_it_lasts(rows_read, rows, shown):
    assert str(HydrationProgress(user_id(1), rows_read, rows, 250)) == shown
