"""What runs the quick tests in several processes: each gets as many files, and as many of those that take long."""

from pathlib import Path

from tools.shares import SHARES, dealt


def test_each_file_is_in_one_share_and_files_with_long_tests_are_in_all(tmp_path: Path) -> None:
    files = []
    for number in range(10 * SHARES):
        path = tmp_path / f"test_{number:03}.py"
        path.write_text("@pytest.mark.reaches" if number % SHARES == 0 else "@pytest.mark.long" if number < 9 else "")
        files.append(str(path))
    shares = dealt(files)
    assert sorted(file for share in shares for file in share) == files
    assert {len(share) for share in shares} == {10}
    dear = [sum("reaches" in Path(file).read_text() for file in share) for share in shares]
    assert max(dear) - min(dear) <= 1
