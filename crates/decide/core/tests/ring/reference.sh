#!/bin/sh
# Makes tokens.txt and rings.txt anew with Cassandra's own classes. Needs Maven and a JDK of 17 or
# later; about 70 MB are downloaded. The result is the same every time.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mvn -q -B -f "$here/pom.xml" dependency:copy-dependencies \
    -DoutputDirectory="$work/lib" -DincludeScope=runtime
opened="java.io java.lang java.lang.reflect java.math java.net java.nio java.util
    java.util.concurrent java.util.concurrent.atomic jdk.internal.ref jdk.internal.misc sun.nio.ch"
options="--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED"
options="$options --add-exports=java.base/jdk.internal.ref=ALL-UNNAMED"
options="$options --add-exports=java.base/sun.nio.ch=ALL-UNNAMED"
for package in $opened; do
    options="$options --add-opens=java.base/$package=ALL-UNNAMED"
done
javac -cp "$work/lib/*" -d "$work/classes" "$here/Reference.java"
# shellcheck disable=SC2086 # the options are several words
java $options -cp "$work/classes:$work/lib/*" Reference "$here"
