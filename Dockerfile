# hotrail with all extras but torch, and what builds twins and simulated cards.
#   docker build -t hotrail .
#   docker run --rm -v "$PWD:/logs" -u "$(id -u):$(id -g)" hotrail plan clicks.csv --table user --table item
FROM python:3.11-slim-bookworm AS build
COPY . /source
RUN python -m venv /opt/hotrail \
 && /opt/hotrail/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes --no-deps -r /source/requirements.lock \
 && /opt/hotrail/bin/pip install --no-cache-dir --disable-pip-version-check --no-build-isolation --no-deps /source

FROM python:3.11-slim-bookworm
RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends g++ make \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/hotrail /opt/hotrail
# Whoever runs it writes into the mounted folder, and numba's compiled loops where everybody may.
ENV PATH=/opt/hotrail/bin:$PATH HOTRAIL_BUILD=/logs/build NUMBA_CACHE_DIR=/tmp/numba
WORKDIR /logs
ENTRYPOINT ["hotrail"]
