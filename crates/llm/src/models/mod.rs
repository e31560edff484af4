//! Models as data: windows, abilities and prices, by name.
//!
//! Start at [`ModelTable`]. Everything in it is an estimate of a given day: [`ModelInfo::as_of`].

mod info;
mod money;
mod prices;
mod table;

pub use self::{
    info::ModelInfo,
    money::{NanoDollars, Price, PriceError},
    prices::{LongPrices, Prices},
    table::{ModelTable, ModelTableError},
};
