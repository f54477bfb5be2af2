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

{{/* Names of cluster-wide objects. Releases with watchNamespaces may have the same name in other namespaces, so theirs include
the namespace after a colon, which no release or namespace name contains. */}}
{{- define "vlm-operator.clusterWideName" -}}
{{- include "vlm-operator.fullname" . -}}
{{- with .Values.watchNamespaces -}}:{{ $.Release.Namespace }}{{- end -}}
{{- end -}}

{{/* Operators that watch all namespaces share one Lease, whatever their release; others have one per release. */}}
{{- define "vlm-operator.leaseName" -}}
{{- if .Values.watchNamespaces -}}{{ include "vlm-operator.fullname" . }}{{- else -}}vlm-operator{{- end -}}
{{- end -}}

{{- define "vlm-operator.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "vlm-operator.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name: name an existing ServiceAccount, because serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* A digest overrides the tag. The init containers of services use the same image. */}}
{{- define "vlm-operator.image" -}}
{{- $repository := required "image.repository: no image is published yet. Build one from the Dockerfile, push it to a registry that your nodes can use, and set its name (docs/install.md)" .Values.image.repository -}}
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


{{/* (root, value, kind of the Prometheus Operator): "true" if the value is true, or Auto and the cluster has the kind. */}}
{{- define "vlm-operator.enabled" -}}
{{- $root := index . 0 -}}
{{- $value := index . 1 -}}
{{- if eq (toString $value) "Auto" -}}
{{- $root.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" (index . 2)) -}}
{{- else -}}
{{- $value -}}
{{- end -}}
{{- end -}}
