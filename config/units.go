package config

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// ByteSize is a number of bytes.
type ByteSize int64

var byteUnits = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1},
}

// String gives the size in its largest whole binary unit, as ParseByteSize
// takes it.
func (b ByteSize) String() string {
	for _, u := range byteUnits[:4] {
		if b != 0 && int64(b)%u.bytes == 0 {
			return fmt.Sprintf("%d%s", int64(b)/u.bytes, u.name)
		}
	}
	return fmt.Sprintf("%dB", int64(b))
}

// ParseByteSize reads a whole number with a unit: B, kB, MB, GB, TB (powers of
// 1000) or KiB, MiB, GiB, TiB (powers of 1024).
func ParseByteSize(s string) (ByteSize, error) {
	digits := strings.TrimRight(s, "BTGMKki")
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || digits == "" || digits[0] == '+' {
		return 0, fmt.Errorf("is not a size: write a whole number and a unit, such as 64MiB")
	}
	unit := s[len(digits):]
	if unit == "" {
		return 0, fmt.Errorf("has no unit: write %sB, or a unit such as MiB", digits)
	}
	for _, u := range byteUnits {
		if u.name != unit {
			continue
		}
		if n > math.MaxInt64/uint64(u.bytes) {
			return 0, fmt.Errorf("is too large: the largest size is %dB", int64(math.MaxInt64))
		}
		return ByteSize(int64(n) * u.bytes), nil
	}
	return 0, fmt.Errorf("has an unknown unit: use B, kB, MB, GB, TB, KiB, MiB, GiB or TiB")
}

var (
	durationForm = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`)
	bareNumber   = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)
)

// ParseDuration reads what time.Duration prints, such as 15s or 1h30m. Signs
// and numbers without a unit (0 too) are refused.
func ParseDuration(s string) (time.Duration, error) {
	switch {
	case bareNumber.MatchString(s):
		return 0, fmt.Errorf("has no unit: write %ss for seconds", s)
	case !durationForm.MatchString(s):
		return 0, fmt.Errorf("is not a duration: write numbers with the units h, m, s or ms, such as 15s or 1h30m")
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("is too long: the longest duration is %s", time.Duration(math.MaxInt64))
	}
	return d, nil
}
