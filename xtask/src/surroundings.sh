#!/bin/bash
# `cargo xtask test-surroundings`: the step `tests` of `ci` as others run it: below /tmp, in a path with a space, with and
# without a terminal, environment, privileges and time. All runs share one clone, and so one build. What this machine
# can't do is left out by name.
#
#   --only NUMBERS   Only these runs, by their numbers (1 to 4), separated by commas.
#   --folder FOLDER  Where the clone and the logs are, and stay. A new folder below /tmp, which is removed after success,
#                    if it is not given.
set -euo pipefail

# The step, as people start it, and the limit of its time.
step='cargo xtask ci --only tests' limit=45m
# How many loops per processor are busy beside a run.
loops=2
# The user of a service, if this user is root.
user=nobody group=nogroup

only= folder= one=
while [ $# -gt 0 ]; do
    case $1 in
    --only | --folder | --one) declare "${1#--}=${2:?"$1 needs a value"}" && shift 2 ;;
    --only=* | --folder=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
    -h | --help) sed -n '2,/^set/s/^# \?//p' "$0" && exit ;;
    *) echo "test-surroundings: $1 is no option; --help lists them" >&2 && exit 2 ;;
    esac
done
# The first run builds what the others run: a package may have files that only its owner can read.
runs=(terminal service busy busy)
if [ -n "$only" ] && ! [[ ,$only =~ ^(,[1-${#runs[@]}])+$ ]]; then
    echo "test-surroundings: --only $only: the runs are 1 to ${#runs[@]}" >&2
    exit 2
fi
for tool in awk git nohup script setpriv setsid taskset timeout unshare; do
    type -P "$tool" > /dev/null || { echo "test-surroundings: \`$tool\` is missing" >&2 && exit 69; }
done
source=$(git rev-parse --show-toplevel)
stays=$folder
folder=$(mkdir -p "${folder:=$(mktemp -d '/tmp/vvm surroundings XXXXXX')}" && realpath "$folder")
tree=$folder/tree

# Cargo is found by its name, as people start it, and not by what the cargo of this program has set.
for name in $(compgen -e CARGO_); do
    [ "$name" = CARGO_HOME ] || unset "$name"
done
unset CARGO RUSTUP_TOOLCHAIN

is_root() {
    [ "$(id -u)" = 0 ]
}

# Gives all files to a user: programs distrust the folders of others.
own() {
    ! is_root || chown -R "$1" "$folder"
}

# Clones the last commit, or brings an earlier clone to it.
clone() {
    own root
    if [ -e "$tree" ]; then
        git -C "$tree" fetch --quiet "$source" HEAD
        git -C "$tree" checkout --quiet --force --detach FETCH_HEAD
    else
        git clone --quiet --no-hardlinks "$source" "$tree"
    fi
}

# Shows this user's Rust to another one, who may not enter the home folder that it is in, and executes the rest. At the
# same path, or cargo would build everything anew.
with_rust() {
    mkdir -p "$folder/rust/cargo" "$folder/rust/rustup"
    RUST=$folder/rust exec unshare --mount sh -c 'set -e; cd "$RUST"
        mount --bind "$HOME/.cargo" cargo; mount --bind "$HOME/.rustup" rustup
        mount -t tmpfs -o mode=0777 home "$HOME"; mkdir "$HOME/.cargo" "$HOME/.rustup"
        mount --bind cargo "$HOME/.cargo"; mount --bind rustup "$HOME/.rustup"
        cd "$OLDPWD"; exec "$@"' sh "$@"
}

# As a developer of another country starts it, as this user.
terminal() {
    own root
    is_root || echo 'left out: root, since this user is not'
    here=$(stat -c %d "$folder")
    for place in /dev/shm /var/tmp /run/shm; do
        [ ! -d $place ] || [ "$(stat -c %d $place)" = "$here" ] || break
        place=
    done
    [ -n "$place" ] || echo 'left out: TMPDIR on another file system, since there is none'
    export ${place:+"TMPDIR=$place"} LANG=de_DE.UTF-8 LC_ALL=de_DE.UTF-8 TERM=xterm
    export {http,https,all}_proxy=http://127.0.0.1:1 {HTTP,HTTPS,ALL}_PROXY=http://127.0.0.1:1
    exec script --quiet --return --command "$step" /dev/null
}

# As a service starts it: no terminal, no environment, a strict umask, an ordinary user. `setpriv` ends the step when the
# process that waits for the session is killed.
service() {
    path=$HOME/.cargo/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
    set -- setpriv --pdeathsig TERM
    if is_root; then
        own $user
        set -- "$@" --reuid $user --regid $group --clear-groups
    else
        echo 'left out: another user than this one, since it is not root'
    fi
    set -- nohup env -i "PATH=$path" "HOME=$HOME" setsid --wait "$@" sh -c "umask 077; exec $step"
    ! is_root || with_rust "$@"
    exec "$@"
}

# Beside busy loops.
busy() {
    own root
    trap 'kill $(jobs -p)' EXIT
    for processor in $(seq 0 $(($(nproc --all) - 1))); do
        for _ in $(seq $loops); do
            taskset --cpu-list "$processor" sh -c 'while :; do :; done' &
        done
    done
    sh -c "$step"
}

declare -A is=(
    [terminal]='a terminal, German, TMPDIR on another file system, a proxy that is closed, root'
    [service]='nohup, env -i, setsid, no terminal, umask 077, an ordinary user'
    [busy]="$loops busy loops per processor"
)

# This program carries out each run by a process of its own, which has a limit.
if [ -n "$one" ]; then
    cd "$tree"
    $one
    exit
fi

clone
trap 'kill $(jobs -p); wait; exit 1' INT TERM HUP
summary= failed=
for number in "${!runs[@]}"; do
    run=${runs[number]}
    number=$((number + 1))
    case ,$only, in
    ,, | *,$number,*) ;;
    *) continue ;;
    esac
    echo "==> $number: ${is[$run]}"
    log=$folder/$number.log
    # Bash has a background job ignore INT and QUIT, which cases about these signals would inherit.
    env --default-signal=INT,QUIT timeout --kill-after=10 $limit bash "$0" --folder "$folder" --one "$run" < /dev/null > "$log" 2>&1 &
    status=0
    wait $! || status=$?
    awk '/^tests: / {ends = 1} ends || /  FAILED  |^left out: /' "$log"
    if [ $status = 0 ]; then
        summary+="$number: ${is[$run]}: held"$'\n'
    else
        echo "exit status $status; all that it said is in $log"
        summary+="$number: ${is[$run]}: FAILED"$'\n' failed=1
    fi
done
echo -n "$summary"
[ -z "$failed" ] || exit 1
if [ -z "$stays" ]; then
    own root
    rm -rf "$folder"
fi
