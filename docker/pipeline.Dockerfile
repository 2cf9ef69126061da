# The pipeline on Spark in local mode. Java for Spark, Python 3.11 for the pipeline: Spark's own images have neither its Python nor its packages.
# The connector's jars are fetched by Spark at the first start, into the home directory.
#
#   docker build -f docker/pipeline.Dockerfile -t ottla-pipeline .

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 python3-venv openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --gid 0 --create-home --shell /bin/bash appuser \
    && mkdir /out \
    && chown 1000:0 /out
WORKDIR /src
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY ottla ./ottla
RUN python3 -m venv /opt/pipeline \
    && /opt/pipeline/bin/pip install --no-cache-dir --disable-pip-version-check '.[pipeline]'
ENV PATH=/opt/pipeline/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONUNBUFFERED=1
USER appuser
WORKDIR /home/appuser
VOLUME ["/out"]
CMD ["ottla-pipeline", "--help"]
