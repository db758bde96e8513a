#!/bin/bash
# The first process of the guest, from /job on: mounts what programs expect, does the job, and turns the machine off.
off() {
    sync
    echo o >/proc/sysrq-trigger
    sleep 60
}
trap off EXIT
mountpoint -q /sys || mount -t sysfs sys /sys
mountpoint -q /dev || mount -t devtmpfs dev /dev
mountpoint -q /run || mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
mkdir -p /dev/shm /dev/pts /run/lock
mount -t tmpfs shm /dev/shm
mount -t devpts pts /dev/pts
ln -sf /proc/self/mounts /etc/mtab
hostname guest
# LVM waits for udev to make the nodes of volumes.
/lib/systemd/systemd-udevd --daemon
udevadm trigger
udevadm settle
for module in loop dm_mod dm_snapshot dm_thin_pool btrfs xfs ext4 fuse zfs; do modprobe --quiet "$module"; done
make_data() {
    mkfs.ext4 -q -m 0 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 /dev/vdb && mount /dev/vdb /data
}
if ! make_data 2>/job/errors; then
    echo 1 >/job/status
    exit
fi
install -m 755 /job/program /usr/local/bin/program
mapfile -t arguments </job/arguments
ICECORE_LAB_JOB=$(</job/job.json) /usr/local/bin/program "${arguments[@]}" >/job/progress 2>/job/errors
echo $? >/job/status
