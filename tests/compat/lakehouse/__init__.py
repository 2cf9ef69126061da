"""What Apache's own programs make of topics' tables: Iceberg's REST server as their catalog, Spark as their reader."""
