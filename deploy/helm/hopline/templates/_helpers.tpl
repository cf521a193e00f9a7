{{- define "hopline.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "hopline.labels" -}}
app.kubernetes.io/name: hopline
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "hopline.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "hopline.databaseSecret" -}}
{{- .Values.database.existingSecret | default (printf "%s-database" (include "hopline.name" .)) -}}
{{- end -}}

{{- define "hopline.tokensSecret" -}}
{{- .Values.tokens.existingSecret | default (printf "%s-tokens" (include "hopline.name" .)) -}}
{{- end -}}

{{- /* What every container may do, which is next to nothing. */ -}}
{{- define "hopline.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "hopline.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- /* 32 random bytes as the mesh writes them. */ -}}
{{- define "hopline.random" -}}
{{- randBytes 32 | replace "+" "-" | replace "/" "_" | trimSuffix "=" -}}
{{- end -}}

{{- /* The port of each service, and who of the mesh calls it. */ -}}
{{- define "hopline.ports" -}}
registry: {port: 7401, metrics: 7491, stores: true, callers: [quota, relay, gateway, console, admin]}
quota: {port: 7403, metrics: 7493, stores: true, callers: [relay, gateway, console, admin]}
relay: {port: 7402, metrics: 7492, stores: true, callers: [relay, gateway, console, admin]}
gateway: {port: 7400, metrics: 7490, stores: false, callers: []}
console: {port: 7404, metrics: 7494, stores: false, callers: []}
{{- end -}}
