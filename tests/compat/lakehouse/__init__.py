"""Apache's own programs take topics' tables: Iceberg's REST server as their catalog, Spark as their reader."""
