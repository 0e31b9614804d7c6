#!/bin/sh
# Builds the ns-3 side of the comparison: build.sh OUTPUT. Debian: apt-get install libns3-dev g++
set -eu
here=$(dirname "$0")
exec g++ -std=c++17 -O2 -Wall -o "$1" "$here/dumbbell.cc" \
    -lns3-core -lns3-network -lns3-stats -lns3-internet -lns3-bridge -lns3-point-to-point -lns3-applications \
    -lns3-traffic-control
