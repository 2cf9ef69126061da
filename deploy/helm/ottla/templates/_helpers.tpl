{{- define "ottla.labels" -}}
app.kubernetes.io/name: ottla
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* id@host:port of every controller: each node is configured with all voters. */}}
{{- define "ottla.voters" -}}
{{- $root := . -}}
{{- $voters := list -}}
{{- range $pool := .Values.pools -}}
{{- if contains "controller" $pool.roles -}}
{{- range $ordinal := until (int $pool.replicas) -}}
{{- $voters = append $voters (printf "%d@%s-%s-%d.%s-headless:9093" (add $pool.firstId $ordinal) $root.Release.Name $pool.name $ordinal $root.Release.Name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- join "," $voters -}}
{{- end }}

{{/* The id that is in the cluster already, the one that was given, or a new one. */}}
{{- define "ottla.clusterId" -}}
{{- $found := lookup "v1" "ConfigMap" .Release.Namespace (printf "%s-cluster" .Release.Name) -}}
{{- if $found -}}
{{- $found.data.id -}}
{{- else -}}
{{- .Values.clusterId | default (randBytes 16 | replace "+" "A" | replace "/" "B" | trimSuffix "==") -}}
{{- end -}}
{{- end }}

{{- define "ottla.between" -}}
{{- if eq .Values.security.mode "none" }}PLAINTEXT{{ else }}SSL{{ end -}}
{{- end }}

{{- define "ottla.clients" -}}
{{- index (dict "none" "PLAINTEXT" "tls" "SSL" "scram" "SASL_SSL") .Values.security.mode | required "security.mode is none, tls or scram" -}}
{{- end }}
