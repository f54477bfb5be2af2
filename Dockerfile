# The one image that gets published, mirrored and signed: it runs the operator, and its pods' init containers copy the
# runtime (pure Python) from it beside any unchanged SGLang image. Nothing of SGLang and no CUDA is in it.
#
#   docker build -t REGISTRY/vlm-operator:0.1.0 . && docker push REGISTRY/vlm-operator:0.1.0

ARG PYTHON_IMAGE=python:3.13-slim-trixie

FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY crds crds
COPY operator operator
COPY runtime runtime
RUN python -m venv /opt/vlm-operator \
 && /opt/vlm-operator/bin/pip install --no-cache-dir --disable-pip-version-check '.[operator]' \
 && /opt/vlm-operator/bin/pip uninstall --yes --disable-pip-version-check pip

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="vlm-operator" \
      org.opencontainers.image.description="Serves vision-language models with SGLang on Kubernetes, and explains every engine setting." \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/vlm-operator /opt/vlm-operator
# The chart and the init containers call `python3`, which has to be this one.
ENV PATH=/opt/vlm-operator/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
# A number, so that `runAsNonRoot` can be checked without reading /etc/passwd.
USER 65532:65532
ENTRYPOINT ["python3", "-m", "vlm_operator"]
