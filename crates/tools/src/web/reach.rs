//! Rules for the network addresses that a tool may contact.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The class of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// The internet.
    Public,
    /// The machine of this program.
    Machine,
    /// A private network.
    Private,
    /// An address that is not a single machine, or a service that returns secrets of this machine, such as a cloud's metadata
    /// service.
    Nowhere,
}

impl Reach {
    pub(super) fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => Self::of_v6(address),
        }
    }

    /// Classifies by the registry of special addresses, RFC 6890 and its updates.
    fn of_v4(address: Ipv4Addr) -> Self {
        match address.octets() {
            // The metadata services of Alibaba and Azure are at addresses of other classes.
            [100, 100, 100, 200] | [168, 63, 129, 16] => Self::Nowhere,
            [127, ..] => Self::Machine,
            [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => Self::Private,
            [0 | 224..=255, ..] | [169, 254, ..] | [192, 0, 0 | 2, _] | [198, 18 | 19, ..] => Self::Nowhere,
            [198, 51, 100, _] | [203, 0, 113, _] => Self::Nowhere,
            _ => Self::Public,
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        if let Some(address) = address.to_ipv4_mapped() {
            return Self::of_v4(address);
        }
        let v4 = |high: u16, low: u16| Self::of_v4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
        match address.segments() {
            [0, 0, 0, 0, 0, 0, 0, 1] => Self::Machine,
            // IPv4 addresses behind a translator or a tunnel are classified as those addresses.
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => v4(high, low),
            // The metadata service of Amazon.
            [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254] => Self::Nowhere,
            [0xfc00..=0xfdff, ..] => Self::Private,
            [0x2001, 0..=0x01ff | 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] => Self::Nowhere,
            [0x2000..=0x3fff, ..] => Self::Public,
            _ => Self::Nowhere,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lead_where_the_registries_say() {
        for (reach, addresses) in [
            (
                Reach::Public,
                vec!["1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "64:ff9b::1.1.1.1"],
            ),
            (Reach::Machine, vec!["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "64:ff9b::127.0.0.1"]),
            (
                Reach::Private,
                vec![
                    "10.0.0.1",
                    "172.16.0.1",
                    "172.31.9.9",
                    "192.168.1.1",
                    "100.64.0.1",
                    "fd00::1",
                    "2002:a00:1::",
                ],
            ),
            (
                Reach::Nowhere,
                vec![
                    "0.0.0.0",
                    "169.254.169.254",
                    "100.100.100.200",
                    "168.63.129.16",
                    "::ffff:168.63.129.16",
                    "fd00:ec2::254",
                    "224.0.0.1",
                    "255.255.255.255",
                    "192.0.2.1",
                    "198.18.0.1",
                    "::",
                    "fe80::1",
                    "ff02::1",
                    "2001:db8::1",
                    "::ffff:169.254.169.254",
                    "100::1",
                    "::127.0.0.1",
                ],
            ),
        ] {
            for address in addresses {
                assert_eq!(Reach::of(address.parse().unwrap()), reach, "{address}");
            }
        }
    }
}
