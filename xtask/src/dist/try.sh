#!/bin/sh
# Installs from a file of a release as a user would, and kills a leader: try.sh deb|wheel|image FILE CONTAINERFILE
#
# `cargo xtask dist --try` runs this, and ends what says nothing for half a minute.
set -eu

file=$2
containerfile=$3
scratch=$(mktemp -d)
started=
cd "$scratch"

clean_up() {
    [ $? = 0 ] || tail -n 20 ./*.log
    # Their descendants end with them: that is what they are for.
    [ -z "$started" ] || kill -s KILL $started 2> /dev/null || true
    if [ -d storage ]; then
        podman rm --all --force --time=0 > /dev/null 2>&1 || true
        podman rmi --all --force > /dev/null 2>&1 || true
        umount storage/overlay 2> /dev/null || true
    fi
    cd /
    rm -rf "$scratch"
}
trap clean_up EXIT
trap 'exit 1' TERM INT

say() {
    echo "# $*"
}

show() {
    echo "$ $*"
    "$@"
}

# start LOG CMD…: starts a command that goes on, and whose output goes to a file. $! is its process.
start() {
    log=$1
    shift
    echo "$ $* &"
    : > "$log"
    "$@" >> "$log" 2>&1 < /dev/null &
    started="$started $!"
}

# wait_for LOG TEXT
wait_for() {
    until grep -e "$2" "$1"; do
        sleep 0.1
    done
}

# ends_with STATUS PROCESS
ends_with() {
    status=0
    wait "$2" || status=$?
    say "exit status $status"
    [ "$status" = "$1" ]
}

# fail_over VVM: two candidates on one machine, and the leader's process is killed.
fail_over() {
    vvm=$1
    storage=sqlite:$scratch/payroll.db
    candidate() {
        start "$1.log" "$vvm" run --storage "$storage" --name payroll --ttl 5s --holder "$1" -- \
            sh -c 'echo I lead with epoch $VVM_LEADER_EPOCH; exec sleep 1d'
    }
    candidate first
    first=$!
    wait_for first.log 'I lead with epoch'
    candidate second
    second=$!
    wait_for second.log 'waiting for leadership'
    show kill -s KILL "$first"
    wait_for second.log 'I lead with epoch'
    show "$vvm" status --storage "$storage" --name payroll
    show kill "$second"
    ends_with 143 "$second"
}

# Installed by dpkg into a root folder of its own.
try_deb() {
    show dpkg-deb --info "$file"
    mkdir -p root/var/lib/dpkg/info root/var/lib/dpkg/updates root/var/log
    touch root/var/lib/dpkg/status root/var/lib/dpkg/available
    # A user namespace, in which any user may give files to root.
    show unshare --map-root-user dpkg --root="$scratch/root" --force-not-root --install "$file"
    show dpkg --root="$scratch/root" --listfiles vvm-cli
    say "The root folder has no library."
    show unshare --map-root-user --root="$scratch/root" /usr/bin/vvm --version
    fail_over root/usr/bin/vvm
}

# Installed by pip into a fresh virtual environment.
try_wheel() {
    show python3 -m venv venv
    show venv/bin/pip install --disable-pip-version-check --no-index "$file"
    show venv/bin/pip show --files vvm-cli
    show venv/bin/vvm --version
    show venv/bin/python -c 'import vvm_warm; help(vvm_warm.connect)'
    fail_over venv/bin/vvm
}

# Run by podman: alone, and as the source of the program for a user's own image. Needs Debian's packages podman, runc
# and busybox-static, and root. Nothing is fetched: the user's image is made of a static busybox.
try_image() {
    # Groups by cgroupfs, because systemd may not be there. Podman's own limits may be above what root has here.
    # crun does not know the mixed groups of both versions that some systems have, and runc does.
    cat > containers.conf << 'END'
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
END
    export CONTAINERS_CONF="$scratch/containers.conf"
    # For a user of no machine.
    chmod 755 .
    mkdir -m 777 data
    podman() {
        command podman --root "$scratch/storage" --runroot "$scratch/run" "$@"
    }
    # The least that vvm needs: any user, a read-only root folder, little memory.
    container() {
        name=$1
        shift
        podman run --name "$name" --network=none --read-only --user=4711:4711 --cap-drop=all \
            --security-opt=no-new-privileges --memory=64m --memory-swap=64m --volume "$scratch/data:/data" "$@"
    }
    loaded=$(show podman load --input "$file")
    echo "$loaded"
    vvm=$(echo "$loaded" | grep -o 'localhost/vvm:[^ ]*')

    say "The image alone: no shell, so its only command is vvm itself."
    show podman run --rm "$vvm" --version
    say "Its root folder is read-only."
    watch() {
        start "$1.log" container "$1" "$vvm" run --storage "$2" --name watch -- \
            /usr/bin/vvm watch --storage "$2" --name watch
    }
    watch refused 'sqlite:/leader.db?allow=overlay'
    ends_with 69 $!
    watch alone sqlite:/data/watch.db
    alone=$!
    wait_for alone.log 'held by'
    say "Process 1 is the guardian. It heeds TERM."
    show podman top alone pid ppid user args
    show podman stop --time 20 alone
    ends_with 143 "$alone"

    say "An image of a user, with a shell and a command, by packaging/Containerfile."
    mkdir context
    cp /bin/busybox "$containerfile" context
    # In place of a distribution's.
    cat > context/Base << 'END'
FROM scratch
COPY busybox /bin/busybox
COPY busybox /bin/sh
ENV PATH=/bin:/usr/bin
END
    cat > context/worker << 'END'
#!/bin/sh
echo "I lead with epoch $VVM_LEADER_EPOCH, as process $$"
[ -e /data/take-all-memory ] && exec busybox tail /dev/zero
exec busybox sleep 86400
END
    chmod 755 context/worker
    cat > vvm.toml << 'END'
storage = "sqlite:/data/payroll.db"
name = "payroll"
ttl = "3s"
command = ["/usr/bin/worker"]
END
    show podman build --quiet --network=none --file context/Base --tag localhost/base context
    show podman build --quiet --network=none --file context/Containerfile --tag localhost/payroll \
        --build-arg BASE=localhost/base --build-arg VVM="$vvm" context
    candidate() {
        start "$1.log" container "$1" --volume "$scratch/vvm.toml:/etc/vvm/vvm.toml:ro" \
            --env VVM_HOLDER="$1" localhost/payroll
    }
    candidate first
    first=$!
    wait_for first.log 'I lead with epoch'
    candidate second
    second=$!
    wait_for second.log 'waiting for leadership'

    say "The worker is killed: its container ends with its status, and the other one leads."
    worker=$(sed -n 's/.*as process //p' first.log)
    show podman exec first /bin/busybox kill -9 "$worker"
    ends_with 137 "$first"
    wait_for second.log 'I lead with epoch'

    say "A whole container is killed: the other one leads when the TTL has passed."
    candidate third
    third=$!
    wait_for third.log 'waiting for leadership'
    show podman kill --signal KILL second
    ends_with 137 "$second"
    wait_for third.log 'I lead with epoch'
    show podman stop --time 20 third
    ends_with 143 "$third"

    say "The worker needs more than the 64 MiB of its container."
    touch data/take-all-memory
    candidate fourth
    ends_with 137 $!
}

"try_$1"
