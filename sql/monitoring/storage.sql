-- Which objects take the most room.
SELECT n.schema_name, n.name, u.size_bytes
FROM slackwater.mz_catalog.mz_recent_storage_usage u
JOIN slackwater.mz_internal.mz_object_fully_qualified_names n ON n.id = u.object_id
ORDER BY u.size_bytes DESC;
