"""What runs on Spark: SQL over topics, pipelines, trace and lag as tables, pictures of them."""
