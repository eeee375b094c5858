-- For each view the input that it waits for, and how much of its lag comes from there.
SELECT v.name, m.local_lag, m.global_lag, i.name AS slowest_input
FROM slackwater.mz_internal.mz_materialization_lag m
JOIN slackwater.mz_internal.mz_object_fully_qualified_names v ON v.id = m.object_id
LEFT JOIN slackwater.mz_internal.mz_object_fully_qualified_names i ON i.id = m.slowest_global_input_id
ORDER BY m.global_lag DESC;
