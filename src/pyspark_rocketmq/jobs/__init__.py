"""Jobs on Spark: SQL over topics, pipelines, trace and lag as tables, and plots."""
