{{- define "vlm-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "vlm-operator.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "vlm-operator.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "vlm-operator.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Objects without a namespace: a release that watches some namespaces only may have namesakes in others. No name of a
release or namespace has a colon. Who watches all is alone, and keeps the plain name. */}}
{{- define "vlm-operator.clusterWideName" -}}
{{- include "vlm-operator.fullname" . -}}
{{- with .Values.watchNamespaces -}}:{{ $.Release.Namespace }}{{- end -}}
{{- end -}}

{{/* Operators that watch all namespaces take turns, whatever their releases are called; others only with their own kind. */}}
{{- define "vlm-operator.leaseName" -}}
{{- if .Values.watchNamespaces -}}{{ include "vlm-operator.fullname" . }}{{- else -}}vlm-operator{{- end -}}
{{- end -}}

{{- define "vlm-operator.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "vlm-operator.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name: say which ServiceAccount to use, since serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* A digest wins over a tag; the same reference goes to the pods' init containers. */}}
{{- define "vlm-operator.image" -}}
{{- $repository := required "image.repository: no image of the operator is published yet; build it from the Dockerfile, push it where the nodes can pull it, and give its name here (docs/install.md)" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "vlm-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "vlm-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "vlm-operator.labels" -}}
{{ include "vlm-operator.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}


{{/* (root, wish, kind of the Prometheus operator): "true" where it is wished for, or Auto and the cluster has the kind. */}}
{{- define "vlm-operator.wanted" -}}
{{- $root := index . 0 -}}
{{- $wish := index . 1 -}}
{{- if eq (toString $wish) "Auto" -}}
{{- $root.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" (index . 2)) -}}
{{- else -}}
{{- $wish -}}
{{- end -}}
{{- end -}}
