-- How far each maintained object is behind the clock, in milliseconds; the worst first.
SELECT n.name, n.object_type, l.lag
FROM slackwater.mz_internal.mz_wallclock_global_lag l
JOIN slackwater.mz_internal.mz_object_fully_qualified_names n ON n.id = l.object_id
ORDER BY l.lag DESC NULLS FIRST;
