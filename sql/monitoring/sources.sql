-- Sources that do not run as they should, what they say, and what they have read.
SELECT s.name, s.status, s.error, t.updates_committed, t.offset_committed
FROM slackwater.mz_internal.mz_source_statuses s
LEFT JOIN slackwater.mz_internal.mz_source_statistics t ON t.id = s.id
WHERE s.status <> 'running'
ORDER BY s.last_status_change_at;
