#!/bin/bash
# Makes the guest in the folder OUT: vmlinuz, initrd, root.ext4, version. Root, Debian; and the network.
# Usage: build.sh OUT [zfs].
# The caller gives it a mount and a process namespace of its own, so no mount and no process outlives it.
set -euo pipefail
out=$1 zfs=${2:-}

# shellcheck source=/dev/null
. /etc/os-release
[[ $ID == debian ]] || { echo "the guest is made of Debian's packages, on Debian: this is $ID" >&2; exit 1; }
codename=$VERSION_CODENAME
# Debian 12 has a kernel of this series beside its own. The packages are those that systems under test need.
kernel=linux-image-amd64
[[ $codename == bookworm ]] && kernel=linux-image-6.12-amd64
packages=$kernel,initramfs-tools,zstd,udev,kmod,procps,mount,fio,lvm2,thin-provisioning-tools
packages+=,btrfs-progs,xfsprogs,e2fsprogs,fuse3,mariadb-server,mariadb-backup,sysbench,bonnie++,mylvmbackup

say() { printf 'guest: %s\n' "$*"; }

# The sources of the host. OpenZFS is in contrib, and that of Debian 12 is too old for the kernel: backports has another.
sources=$out/debian.sources
backports=
if [[ -e /etc/apt/sources.list.d/debian.sources ]]; then
    cp /etc/apt/sources.list.d/debian.sources "$sources"
    backports="s/^Components:.*/Components: main contrib/; s/^Suites: $codename .*/& $codename-backports/"
else
    sources=$out/debian.list
    grep -E '^deb .*debian' /etc/apt/sources.list >"$sources" ||
        { echo "no source of Debian's packages in /etc/apt" >&2; exit 1; }
    backports="s/^(deb .* )$codename (.*)/&\n\1$codename-backports \2/; s/ main.*/ main contrib/"
fi
[[ -z $zfs ]] || sed -Ei "$backports" "$sources"

# The initial RAM disk has only what it takes to mount the root.
mkdir -p "$out/etc/initramfs-tools/conf.d" "$out/etc/apt/preferences.d"
printf 'MODULES=list\nCOMPRESS=zstd\n' >"$out/etc/initramfs-tools/conf.d/guest"
printf 'virtio_pci\nvirtio_blk\next4\n' >"$out/etc/initramfs-tools/modules"
[[ -z $zfs ]] ||
    printf 'Package: src:zfs-linux\nPin: release n=*-backports\nPin-Priority: 990\n' >"$out/etc/apt/preferences.d/zfs"
export ETC=$out/etc

# root FOLDER PACKAGES: Debian with these packages.
root() {
    # The hooks expand their variables themselves.
    # shellcheck disable=SC2016
    mmdebstrap --mode=root --format=directory --variant=minbase --aptopt='APT::Install-Recommends "false"' \
        --setup-hook='mkdir -p "$1/etc" && cp -a "$ETC/." "$1/etc/"' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt=force-confold --dpkgopt=force-unsafe-io \
        --include="$2" "$codename" "$1" "$sources"
}

if [[ $zfs ]]; then
    say 'compiling OpenZFS (3 to 20 minutes, once)'
    headers=${kernel/image/headers}
    root "$out/compiler" "gcc,make,libc6-dev,kmod,$kernel,$headers,zfs-dkms"
    mkdir "$out/zfs"
    find "$out/compiler"/lib/modules/*/updates \( -name 'zfs.ko*' -o -name 'spl.ko*' \) -exec cp {} "$out/zfs/" \;
    [[ $(find "$out/zfs" -name 'zfs.ko*') ]] ||
        { cat "$out/compiler"/var/lib/dkms/zfs/*/build/make.log >&2; exit 1; }
    rm -rf "$out/compiler"
    packages+=,zfsutils-linux
fi

say "installing Debian's packages (3 minutes)"
root "$out/root" "$packages"
version=$(basename "$out/root"/lib/modules/*)
if [[ $zfs ]]; then
    mv "$out/zfs" "$out/root/lib/modules/$version/extra"
    chroot "$out/root" depmod "$version"
fi
# What the guest does comes with each job, so it is no part of what is kept.
cat >"$out/root/init" <<'INIT'
#!/bin/bash
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
mountpoint -q /proc || mount -t proc proc /proc
for module in 9pnet_virtio 9p; do modprobe "$module"; done
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 job /job && exec bash /job/init
INIT
chmod 755 "$out/root/init"
# Nothing in the guest extends snapshots or asks for a daemon.
printf 'activation { monitoring = 0 }\n' >"$out/root/etc/lvm/lvmlocal.conf"
printf '127.0.0.1 localhost guest\n' >"$out/root/etc/hosts"
mkdir -p "$out/root/job" "$out/root/data"
cp "$out/root/boot/vmlinuz-$version" "$out/vmlinuz"
cp "$out/root/boot/initrd.img-$version" "$out/initrd"
say 'writing the root'
truncate -s "$(($(du -sm "$out/root" | cut -f1) * 5 / 4 + 512))M" "$out/root.ext4"
mkfs.ext4 -q -F -d "$out/root" "$out/root.ext4"
rm -rf "$out/root" "$out/etc" "$sources"
printf '%s\n' "$version" >"$out/version"
say "built, with Linux $version"
