#!/bin/sh
exec ottla container run --dialect bitnami "$@"
