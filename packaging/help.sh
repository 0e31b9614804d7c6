# Sourced first: prints the heading of a script that is asked for --help.
case ${1:-} in
-h | --help)
    awk 'NR > 1 && !/^#/ { exit } NR > 1 { sub(/^# ?/, ""); print }' "$0"
    exit 0
    ;;
esac
