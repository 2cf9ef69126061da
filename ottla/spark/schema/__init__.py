"""The table `schema`: keys and values of Avro as typed columns, by the schemas of a registry (docs/SPARK.md, "Avro to
columns").
"""
