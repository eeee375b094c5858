-- What cannot be read yet, because it has not been computed for the first time.
SELECT n.schema_name, n.name
FROM slackwater.mz_internal.mz_hydration_statuses h
JOIN slackwater.mz_internal.mz_object_fully_qualified_names n ON n.id = h.object_id
WHERE NOT h.hydrated;
