"""A tiny tree with HCP's layout, and an S3 service on the loopback interface that serves it and checks signatures."""

from __future__ import annotations

import gzip
import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import boto3
import nibabel as nib
import numpy as np
import pytest
from moto.moto_server.threaded_moto_server import ThreadedMotoServer

from bolt.datasets.hcp import VOLUMES

AFFINE = np.array([[-12.0, 0, 0, 90], [0, 12, 0, -126], [0, 0, 12, -72], [0, 0, 0, 1]])
SHAPE = (16, 19, 16)
"""MNI152's field at 12 mm."""
TINY = (4, 4, 4)
ONSETS = {
    "EMOTION": {"fear": "32.05\t18\t1\n74.2\t18\t1\n", "neut": "10.97\t18\t1\n", "Sync": "6.53\n", "error": ""},
    "GAMBLING": {"win": "36.1\t28\t1\n", "loss": "8.0\t28\t1\n", "Sync": "6.1\n", "neut_event": "0\t0\t0\n"},
}
FAMILIES = {"100307": "F1", "100408": "F1"}


def write_hcp(
    root: Path,
    numbers: list[str],
    tasks: list[str],
    n_volumes: dict[str, int] | None = None,
    shape: tuple[int, int, int] = SHAPE,
) -> None:
    """Write `root`/HCP_1200 and the two tables of subjects; every second person is a man."""
    for number in numbers:
        for task in tasks:
            write_scan(root / "HCP_1200", number, task, (n_volumes or {}).get(number), shape)
    people = [f"{n},S900,Q03,{'MF'[i % 2 == 0]},{['22-25', '26-30', '36+'][i % 3]}" for i, n in enumerate(numbers)]
    rows = ["Subject,Release,Acquisition,Gender,Age", *people]
    (root / "unrestricted.csv").write_text("\n".join(rows) + "\n")
    more = [f"{n},{23 + i},{FAMILIES.get(n, f'G{n}')}" for i, n in enumerate(numbers)]
    (root / "restricted.csv").write_text("\n".join(["Subject,Age_in_Yrs,Family_ID", *more]) + "\n")


def write_scan(
    root: Path, number: str, task: str, n_volumes: int | None = None, shape: tuple[int, int, int] = SHAPE
) -> None:
    """Write an image (noise that differs between people), its mask, movement and onsets."""
    name = "rfMRI_REST1_LR" if task == "REST" else f"tfMRI_{task}_LR"
    folder = root / number / "MNINonLinear/Results" / name
    folder.mkdir(parents=True)
    shape = TINY if task == "REST" else shape
    seed = int(number) + len(task)
    (folder / f"{name}.nii.gz").write_bytes(_image(seed, (*shape, n_volumes or VOLUMES[task])))
    nib.save(nib.Nifti1Image(np.ones(shape, np.uint8), AFFINE), folder / "brainmask_fs.2.nii.gz")
    (folder / "Movement_RelativeRMS_mean.txt").write_text("0.091\n")
    if task != "REST":
        (folder / "EVs").mkdir()
        for condition, text in ONSETS.get(task, {"block": "10\t20\t1\n"}).items():
            (folder / "EVs" / f"{condition}.txt").write_text(text)


@cache
def _image(seed: int, shape: tuple[int, ...]) -> bytes:
    data = np.random.default_rng(seed).integers(900, 1100, shape)
    image = nib.Nifti1Image(data.astype(np.int16), AFFINE)
    image.header.set_zooms((12, 12, 12, 0.72))
    image.header.set_xyzt_units("mm", "sec")
    return gzip.compress(image.to_bytes(), 1)


@dataclass(frozen=True)
class S3:
    """A running service, and the credentials of the one user whom its bucket admits."""

    endpoint: str
    key: str
    secret: str

    def credentials(self, path: Path, profile: str = "hcp", key: str = "", secret: str = "") -> Path:
        """Write a file such as ~/.aws/credentials."""
        text = f"[{profile}]\naws_access_key_id = {key or self.key}\naws_secret_access_key = {secret or self.secret}\n"
        path.write_text(text)
        return path


@contextmanager
def serve_s3(folder: Path, bucket: str = "hcp-openaccess") -> Iterator[S3]:
    """Serve the files of a folder as objects; requests without a right signature are refused."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    owner = dict.fromkeys(("aws_access_key_id", "aws_secret_access_key"), "owner")
    owner |= {"endpoint_url": endpoint, "region_name": "us-east-1"}
    try:
        s3, iam = boto3.client("s3", **owner), boto3.client("iam", **owner)
        s3.create_bucket(Bucket=bucket)
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            s3.put_object(Bucket=bucket, Key=str(path.relative_to(folder)), Body=path.read_bytes())
        iam.create_user(UserName="reader")
        allowed = {"Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket"], "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
        iam.put_user_policy(UserName="reader", PolicyName="read", PolicyDocument=policy)
        made = iam.create_access_key(UserName="reader")["AccessKey"]
        _enforce(endpoint, "0")
        yield S3(endpoint, made["AccessKeyId"], made["SecretAccessKey"])
    finally:
        _enforce(endpoint, "inf")
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/moto-api/reset", method="POST")).close()
        server.stop()


def hide_aws(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Hide the AWS settings of this computer: those of a folder, in `credentials`, are read instead."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        patch.delenv(name)
    patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "credentials"))
    patch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def _enforce(endpoint: str, after: str) -> None:
    """Check signatures once so many requests were answered."""
    request = urllib.request.Request(f"{endpoint}/moto-api/reset-auth", after.encode(), method="POST")
    request.add_header("Content-Type", "text/plain")
    urllib.request.urlopen(request).close()
